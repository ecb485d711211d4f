"""A store that commit 3328ac6 made, in the hands of today's code and of a version to come.

Nothing in it may be lost: its champions, its history, its evaluation set (which has no confirmation split)
and what a killed training left. tests/data/README.md says how it was made.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import next_version
import pytest
from ground import Ground
from killed_writes import forked_store_command
from old_store import CHANNEL, roll_back, unpack

from yanmo.promote.command import main as promote
from yanmo.promote.history.champion_records import all_records
from yanmo.store import upgrades
from yanmo.store.manifest import Reference
from yanmo.store.output import open_reference, read_json
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


@pytest.fixture
def rolled_back(tmp_path: Path, uri: str) -> Ground:
    """The same after a rollback by that commit's code, in a folder and on a real S3 server."""
    root = unpack(tmp_path / "old")
    roll_back(root)
    ground = Ground(uri)
    for path in sorted(p for p in root.rglob("*") if p.is_file() and ".locks" not in p.parts):
        ground.store.create(path.relative_to(root).as_posix(), path.read_bytes())
    return ground


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
    result = subprocess.run(command, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_every_tool_reads_it_whole(old: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    listed = old.tool("ls", "--json").json
    assert listed["pointers"][f"{CHANNEL}/champion"] == f"train/{champion(old).key}"
    states = [row["status"] for row in listed["outputs"]]
    assert states.count("done") == 23 and states.count("stopped") == 1
    assert old.tool("verify").out.startswith("whole: 23 outputs, 114 files")
    assert old.tool("migrate").out.startswith("38 documents read: 36 current, 2 to be rewritten")
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


@pytest.mark.road
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
    result = rehearsal(old.uri)
    assert result.returncode == 0, result.stderr
    record = json.loads((Path(old.uri) / "pointers" / CHANNEL / "history" / "000001.json").read_bytes())
    assert record["schema"] == "yanmo.promotion/2" and "champion_since" not in record
    told = old.tool("migrate").out  # today's code neither reads nor harms what a later version wrote
    assert "of a later version of Yanmo" in told


def test_a_migration_that_is_killed_again_and_again_loses_nothing(
    old: Ground, rehearsal: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    result = rehearsal(old.uri, "--kill")
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 10, "it was killed at many moments"


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

    monkeypatch.setitem(upgrades.UPGRADES, "yanmo.coronation/0", renamed)
    assert old.tool("gc").code == 65
    assert old.tool("verify").code == 65


RECORDS = [f"pointers/{CHANNEL}/history/{number:06d}.json" for number in (1, 2, 3)]
OLD_NAMES = {b"yanmo.coronation", b"crowned_at", b'"barred"'}


def stored(ground: Ground) -> dict[str, bytes]:
    """The files of history and pointers, by name."""
    return {name: ground.store.read(name)[0] for name in ground.names("pointers")}


def old_names(ground: Ground) -> set[bytes]:
    """Those of the old names that a record still has."""
    return {old for name in RECORDS for old in OLD_NAMES if old in ground.store.read(name)[0]}


@functools.cache
def written() -> list[dict[str, Any]]:
    """The records as commit 3328ac6 wrote them."""
    with tempfile.TemporaryDirectory() as folder:
        root = unpack(Path(folder))
        roll_back(root)
        return [json.loads((root / name).read_bytes()) for name in RECORDS]


def check_history(ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    """Champion, records, pointers and rolled back models are those that commit 3328ac6 wrote."""
    records = history(ground, capsys)
    renamed = {"crowned_at": "champion_since", "barred": "rolled_back"}
    for record, old_record in zip(records, written(), strict=True):
        kept = {n: v for n, v in old_record.items() if n not in ("schema", "sealed")}
        assert record == {renamed.get(name, name): value for name, value in kept.items()}
    assert [record["kind"] for record in records] == ["promotion", "promotion", "rollback"]
    assert champion(ground).content_digest == records[0]["model"]["content_digest"]
    (taken_down,) = records[2]["rolled_back"]
    assert taken_down["model"] == records[1]["model"]["content_digest"] and taken_down["who"] == "li"
    measured = read_pointer(ground.store, CHANNEL, "champion_evaluation")
    assert measured == Reference.from_dict(records[0]["evaluation"])


def check_rolled_back_model_is_refused(ground: Ground) -> None:
    """Today's promote does not put back the model that a person took down with the old version."""
    records = all_records(ground.store, CHANNEL)
    before = stored(ground)
    words = ["--challenger", f"evaluate/{records[1].evaluation.key}"]
    words += ["--champion", f"evaluate/{records[0].evaluation.key}"]
    words += ["--writing", "none", "--accept-unmeasured", "contamination", "--limits", ""]
    same = ["--store", ground.uri, "--channel", CHANNEL, "--inputs", "latest", "--metrics-port", "-1"]
    assert promote([*same, *GATE, *words]) == 0
    verdict = read_pointer(ground.store, CHANNEL, "promote")
    assert verdict is not None
    sentence = read_json(open_reference(ground.store, verdict), "verdict.json")["sentence"]["en"]
    assert sentence.startswith("Not promoted: this model was taken down before: ") and "by li:" in sentence
    after = stored(ground)
    moved = {name for name in after if after[name] != before.get(name)}
    assert moved <= {f"pointers/{CHANNEL}/promote.json"}, "no champion, and no record"


def test_records_of_the_old_schema_are_read_and_brought_forward(
    rolled_back: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    check_history(rolled_back, capsys)
    check_rolled_back_model_is_refused(rolled_back)
    before = stored(rolled_back)
    assert "3 to be rewritten (--write does it), 0 unreadable" in rolled_back.tool("migrate").out
    assert stored(rolled_back) == before, "a dry run writes nothing"
    assert old_names(rolled_back) == OLD_NAMES
    assert "3 rewritten, 0 unreadable" in rolled_back.tool("migrate", "--write").out
    assert not old_names(rolled_back)
    after = stored(rolled_back)
    assert {name for name in after if after[name] != before[name]} == set(RECORDS), (
        "pointers stay as they are"
    )
    check_history(rolled_back, capsys)
    assert "0 to be rewritten" in rolled_back.tool("migrate").out
    assert "0 rewritten" in rolled_back.tool("migrate", "--write").out and stored(rolled_back) == after
    check_rolled_back_model_is_refused(rolled_back)
    assert rolled_back.gc().code == 0
    assert rolled_back.tool("verify").code == 0
    check_history(rolled_back, capsys)


def test_a_migration_of_today_that_is_killed_at_any_write_is_finished_by_the_next(
    rolled_back: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    halves = 0
    for moment in itertools.count():
        code = forked_store_command(moment, "migrate", "--write", "--store", rolled_back.uri)
        check_history(rolled_back, capsys)
        assert rolled_back.tool("verify").code == 0
        if not code:
            break
        assert code == -signal.SIGKILL
        if re.search(r" [12] to be rewritten", rolled_back.tool("migrate").out):
            halves += 1
            assert rolled_back.gc().code == 0
            check_rolled_back_model_is_refused(rolled_back)
    assert halves and not old_names(rolled_back)


def test_a_record_that_another_process_changes_during_a_migration_is_read_again(
    rolled_back: Ground, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second migration at the same time: each document is brought forward by one of the two."""
    store = type(rolled_back.store)
    real = store.replace
    second: list[str] = []

    def replace(self: Any, *args: Any) -> str:
        if not second:
            second.append("begun")
            second.append(rolled_back.tool("migrate", "--write").out)
        return str(real(self, *args))

    monkeypatch.setattr(store, "replace", replace)
    first = rolled_back.tool("migrate", "--write")
    assert first.code == 0 and "3 rewritten" in second[1] and "0 rewritten, 0 unreadable" in first.out
    check_history(rolled_back, capsys)


@pytest.mark.parametrize(
    "schema_found", ["yanmo.coronation/2", "yanmo.promotion/2", "yanmo.other/1", 7, None]
)
def test_a_record_of_an_unknown_schema_is_never_taken_for_no_champion(
    old: Ground, capsys: pytest.CaptureFixture[str], schema_found: object
) -> None:
    better, before = history(old, capsys)[1], champion(old)
    path = Path(old.uri) / RECORDS[1]
    values = {**json.loads(path.read_bytes()), "schema": schema_found}
    values.pop("sealed")
    path.write_text(json.dumps(values), encoding="utf-8")
    whole = stored(old)
    same = ["--store", old.uri, "--channel", CHANNEL, "--inputs", "latest", "--metrics-port", "-1"]
    assert promote([*same, "--challenger", f"evaluate/{better['evaluation']['key']}", *GATE]) == 65
    assert promote(["rollback", "--store", old.uri, "--channel", CHANNEL, "--why", "a test", "--yes"]) == 65
    assert old.gc().code == 65 and old.tool("migrate", "--write").code == 65
    assert stored(old) == {**whole, RECORDS[0]: stored(old)[RECORDS[0]]} and champion(old) == before
