"""From one version to the next and back, on one channel: today's, and a copy with raised revisions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import next_version
import pytest
from ground import Ground
from old_store import CHANNEL, unpack

from yanmo.promote.history.champion_records import all_records
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer

SHAPE = (
    "--ranks 1 --batch-rows 8 --context 32 --layers 1 --width 16 --heads 1 --head-width 16 --feed-forward 32 "
    "--tied-head --start random --warmup-steps 1 --valid-characters 300"
)
SCORING = "--samples 1 --sample-tokens 8 --bootstrap-draws 200 --workers 1"
GATE = "--limits distinct_2>=0 --min-gain 0 --level 0.5 --max-genre-loss 9 --draws 2000"
TODAY = next_version.COMPONENTS


@pytest.fixture
def raised(tmp_path: Path) -> Path:
    """The code with the next revision of each of the last three stages."""
    folder = tmp_path / "next" / "components"
    shutil.copytree(TODAY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for stage in ("train", "evaluate", "promote"):
        path = folder / "yanmo" / stage / "config.py"
        text = path.read_text(encoding="utf-8")
        new = re.sub(r"\brevision=(\d+)", lambda found: f"revision={int(found[1]) + 1}", text)
        assert new != text, stage
        path.write_text(new, encoding="utf-8")
    return folder


def yanmo(code: Path, store: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "yanmo.cli", *words, "--store", store, "--channel", CHANNEL]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(code)}, capture_output=True, text=True
    )


def night(code: Path, store: str, steps: int) -> None:
    """Train, judge and promote with one version, from the cache that the old store holds."""
    same = ("--inputs", "latest", "--metrics-port", "-1")
    stages = [("train", f"{SHAPE} --steps {steps} --seed 3"), ("evaluate", SCORING), ("promote", GATE)]
    for stage, words in stages:
        done = yanmo(code, store, stage, *words.split(), *same)
        assert done.returncode == 0, done.stderr


@pytest.mark.road
def test_a_version_with_raised_revisions_is_judged_and_rolled_back_by_the_one_before(
    tmp_path: Path, raised: Path
) -> None:
    ground = Ground(str(unpack(tmp_path)))
    night(raised, ground.uri, 90)
    theirs = all_records(ground.store, CHANNEL)[-1]
    model = open_reference(ground.store, theirs.model)
    assert theirs.number == 3
    night(TODAY, ground.uri, 90)  # the same command: of another revision, so another key
    ours = read_pointer(ground.store, CHANNEL, "train")
    assert ours is not None and ours.key != theirs.model.key
    assert open_reference(ground.store, ours).manifest.revision == model.manifest.revision - 1
    night(TODAY, ground.uri, 200)
    records = all_records(ground.store, CHANNEL)
    assert records[-1].number > 3 and records[-1].kind == "promotion"
    back = yanmo(
        TODAY, ground.uri, "promote", "rollback", "--to", "3", "--why", "a test", "--who", "li", "--yes"
    )
    assert back.returncode == 0, back.stderr
    champion = read_pointer(ground.store, CHANNEL, "champion")
    assert champion is not None and champion.content_digest == theirs.model.content_digest
    assert yanmo(raised, ground.uri, "promote", "history").returncode == 0
    assert ground.tool("verify").code == 0 and ground.gc().code == 0 and ground.tool("verify").code == 0
