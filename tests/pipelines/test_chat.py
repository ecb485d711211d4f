"""The pipeline `chat` on real text: a champion is tuned, measured beside what it was, and judged."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from tiny_road import ALL, ENV, ROOT, SETTINGS, stages_of, write_text

TUNING = {
    **SETTINGS,
    "options": f"{SETTINGS['options']} train.valid_every=2 train.early_stopping=2 evaluate.task_documents=2",
    "promote.limits": "forgotten_bits<=20",
    "data_sources": "text.jsonl,chats.jsonl",
    "data_quotas": "chat=100%,*=20%",
}


def run(folder: Path, flag: str, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "yanmo.cli", "run", "--store=runs", flag]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    return subprocess.run(command, cwd=folder, env=ENV, capture_output=True, text=True)


def pointer(folder: Path, channel: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"runs/pointers/{channel}/{name}.json").read_text())
    return found


def manifest(folder: Path, stage: str, key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "runs/cas" / stage / key / "MANIFEST.json").read_text())
    return found


@pytest.mark.road
def test_a_champion_is_tuned_measured_beside_itself_and_promoted_once(tmp_path: Path) -> None:
    write_text(tmp_path / "text.jsonl", 120)
    with zstandard.open(ROOT / "corpus/chats.jsonl.zst", "rt", encoding="utf-8") as lines:
        (tmp_path / "chats.jsonl").write_text("".join(itertools.islice(lines, 400)), encoding="utf-8")

    too_early = run(tmp_path, "--pipeline=chat", TUNING)
    assert too_early.returncode == 65 and "has no champion yet. Make one first" in too_early.stderr
    assert stages_of(too_early) == []

    first = run(tmp_path, "--channel=main", {**SETTINGS, "data_sources": "text.jsonl", "promote.limits": ""})
    assert first.returncode == 0, first.stderr
    tuned = run(tmp_path, "--pipeline=chat", TUNING)
    assert tuned.returncode == 0, tuned.stderr
    assert stages_of(tuned) == ALL

    champion = pointer(tmp_path, "main", "champion")
    trained = manifest(tmp_path, "train", pointer(tmp_path, "chat", "train")["key"])
    assert trained["inputs"]["model"]["content_digest"] == champion["content_digest"]
    (path,) = (tmp_path / "runs/cas/promote" / pointer(tmp_path, "chat", "promote")["key"]).glob(
        "*/report.json"
    )
    report = json.loads(path.read_text(encoding="utf-8"))
    assert set(report["base"]["genres"]) == {"chat", "诗", "词", "文", "赋"}
    assert report["base"]["answers"] == report["base"]["genres"]["chat"]
    assert {row["task"] for row in report["tasks"]["rows"]} >= {"genre", "punctuation"}
    assert all(row["base"] is not None or row["value"] is None for row in report["tasks"]["rows"])
    assert report["tasks"]["answers"] and all(a["base"] is not None for a in report["tasks"]["answers"])
    assert "bits of answers" in tuned.stdout and "Answers to held-out questions" in tuned.stdout
    assert pointer(tmp_path, "chat", "champion")["key"] == pointer(tmp_path, "chat", "train")["key"]
    assert pointer(tmp_path, "main", "champion") == champion, "the base's channel is left alone"

    again = run(tmp_path, "--pipeline=chat", TUNING)
    assert again.returncode == 0 and stages_of(again) == [], again.stderr
