"""A store that commit 3328ac6 made, in the hands of today's code and of a version to come.

Nothing in it may be lost: its champions, its history, its evaluation set (which has no confirmation split)
and what a killed training left. tests/data/README.md says how it was made.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import next_version
import pytest
from ground import Ground
from old_store import CHANNEL, unpack

from yanmo.promote.command import main as promote
from yanmo.store import schema
from yanmo.store.manifest import Reference
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer

ROOT = Path(__file__).parents[4]
GATE = (
    "--limits",
    "distinct_2>=0",
    "--min-gain",
    "0",
    "--level",
    "0.5",
    "--max-genre-loss",
    "9",
    "--draws",
    "2000",
)


@pytest.fixture
def old(tmp_path: Path) -> Ground:
    return Ground(str(unpack(tmp_path)))


def champion(ground: Ground) -> Reference:
    found = read_pointer(ground.store, CHANNEL, "champion")
    assert found is not None
    return found


def history(ground: Ground, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert promote(["history", "--store", ground.uri, "--channel", CHANNEL, "--json"]) == 0
    records: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["records"]
    return records


def yanmo(ground: Ground, stage: str, *words: str) -> None:
    """Run a stage of today's on the store, as a user does."""
    command = [sys.executable, "-m", "yanmo.cli", stage, "--store", ground.uri, "--channel", CHANNEL]
    command += ["--inputs", "latest", "--metrics-port", "-1", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "components")}
    said = subprocess.run(command, env=env, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr


def test_every_tool_reads_it_whole(old: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    listed = old.tool("ls", "--json").json
    assert listed["pointers"][f"{CHANNEL}/champion"] == f"train/{champion(old).key}"
    states = [row["status"] for row in listed["outputs"]]
    assert states.count("done") == 23 and states.count("stopped") == 1
    assert old.tool("verify").out.startswith("whole: 23 outputs, 114 files")
    assert old.tool("migrate").out.startswith("38 documents read: 38 current")
    assert [r["number"] for r in history(old, capsys)] == [1, 2]
    shown = old.tool("show", f"{CHANNEL}/champion")
    assert shown.code == 0 and champion(old).key[:12] in shown.out


def test_gc_takes_nothing_that_champions_and_history_rest_on(
    old: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    before, records = champion(old), history(old, capsys)
    planned = old.tool("gc", "--older-than", "0").out
    assert "would remove" in planned and not re.search(
        r"output (train|evaluate|promote|evaluation_set)/", planned
    )
    assert old.gc().code == 0
    assert old.tool("verify").code == 0
    assert champion(old) == before and history(old, capsys) == records
    for record in records:
        for name in ("model", "evaluation", "verdict"):
            output = open_reference(old.store, Reference.from_dict(record[name]))
            assert all(output.path(entry.path).is_file() for entry in output.manifest.files)


def test_its_worse_challenger_is_refused_again_and_the_page_names_its_champion(old: Ground) -> None:
    before = champion(old)
    assert (
        promote(
            ["--store", old.uri, "--channel", CHANNEL, "--inputs", "latest", "--metrics-port", "-1", *GATE]
        )
        == 0
    )
    assert champion(old) == before
    verdict = read_pointer(old.store, CHANNEL, "promote")
    assert verdict is not None
    output = open_reference(old.store, verdict)
    report = json.loads(output.path("report.json").read_text(encoding="utf-8"))
    assert not report["verdict"]["promote"] and report["champion"]["name"] == f"train/{before.key[:12]}"
    assert f"train/{before.key[:12]}" in output.path("report.html").read_text(encoding="utf-8")


def test_a_better_model_of_today_follows_its_champion_who_can_be_brought_back(
    old: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    before, records = champion(old), history(old, capsys)
    evaluation_set = read_pointer(old.store, CHANNEL, "evaluation_set")
    scoring = "--samples 1 --sample-tokens 8 --bootstrap-draws 200 --workers 1"
    shape = "--ranks 1 --batch-rows 8 --context 32 --layers 1 --width 16 --heads 1 --head-width 16"
    shape += " --feed-forward 32 --tied-head --start random --warmup-steps 1 --valid-characters 300"
    yanmo(old, "train", *shape.split(), "--steps", "90", "--seed", "3")
    yanmo(old, "evaluate", *scoring.split())
    yanmo(old, "promote", *GATE)
    now = champion(old)
    third = history(old, capsys)
    assert [*third[:2]] == records and third[2]["model"]["key"] == now.key != before.key
    assert third[2]["previous"]["key"] == before.key
    assert read_pointer(old.store, CHANNEL, "evaluation_set") == evaluation_set, "it stays pinned"
    back = ["rollback", "--store", old.uri, "--channel", CHANNEL, "--why", "a test", "--who", "test", "--yes"]
    assert promote(back) == 0
    assert champion(old).content_digest == before.content_digest
    assert old.tool("verify").code == 0


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    code = next_version.make(tmp_path_factory.mktemp("next") / "components")

    def run(store: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(Path(next_version.__file__)), store, *words]
        env = {**os.environ, "PYTHONPATH": str(code)}
        return subprocess.run(command, env=env, capture_output=True, text=True)

    return run


def test_a_version_with_other_names_reads_it_and_migrates_it(
    old: Ground, rehearsal: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    said = rehearsal(old.uri)
    assert said.returncode == 0, said.stderr
    record = json.loads((Path(old.uri) / "pointers" / CHANNEL / "history" / "000001.json").read_bytes())
    assert record["schema"] == "yanmo.promotion/1" and "crowned_at" not in record
    told = old.tool("migrate").out  # today's code neither reads nor harms what a later version wrote
    assert "of a later version of Yanmo" in told or "expected 'yanmo.coronation/1'" in told


def test_a_migration_that_is_killed_again_and_again_loses_nothing(
    old: Ground, rehearsal: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    said = rehearsal(old.uri, "--kill")
    assert said.returncode == 0, said.stderr
    assert int(said.stdout) >= 10, "it was killed at many moments"


def test_a_record_of_an_older_schema_that_names_the_wrong_output_is_refused(
    old: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked under the names that it has today: an older name hid an exchanged record from gc and verify."""
    path = Path(old.uri) / "pointers" / CHANNEL / "history" / "000002.json"
    values = json.loads(path.read_bytes())
    values.pop("sealed", None)
    values |= {"schema": "yanmo.coronation/0", "before": values["evaluation"]}
    del values["previous"]
    path.write_text(json.dumps(values), encoding="utf-8")

    def renamed(found: dict[str, Any]) -> dict[str, Any]:
        rest = {name: value for name, value in found.items() if name != "before"}
        return {**rest, "previous": found["before"], "schema": "yanmo.coronation/1"}

    monkeypatch.setitem(schema.UPGRADES, "yanmo.coronation/0", renamed)
    assert old.tool("gc").code == 65
    assert old.tool("verify").code == 65
