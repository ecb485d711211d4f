"""A small torture in every run of the tests: two stages, every kind of store that is here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from torture import disk, flips, kills, misplaced, network, races
from torture.events import normalized, writer_of
from torture.ground import Ground, Record, open_ground
from torture.place import FilePlace, leftovers, lost, survey
from torture.stages import run_stage

SEED = 7
STAGES = ("curate", "balance")


@pytest.fixture(scope="module")
def file_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with open_ground("file", tmp_path_factory.mktemp("torture"), SEED, stages=STAGES) as ground:
        yield ground


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "record.json", "file", SEED)


def findings(record: Record) -> list[str]:
    return [finding for case in record.value["cases"] for finding in case["findings"]]


def test_kill_9_before_every_commit_of_two_stages_loses_nothing(file_ground: Ground) -> None:
    """A slow undisturbed run renews its lease more often than a fast one, so a moment may not come: again."""
    killed: set[str] = set()
    for number in range(4):
        with file_ground.place() as place:
            journey = kills.travel(file_ground.profile, place, file_ground.folder, number, SEED)
        assert journey.findings == []
        killed |= {kill.writer for kill in journey.kills}
        if not journey.missed:
            break
    assert killed >= {"curate_map", "evaluation_set", "curate", "balance"}


@pytest.mark.fault
def test_flipped_bits_are_found_and_named(file_ground: Ground, record: Record) -> None:
    flips.run(file_ground, record, times=1)
    assert {"manifest", "content file", "pointer", "lease"} <= {c["name"] for c in record.value["cases"]}
    assert findings(record) == []


@pytest.mark.fault
def test_two_runs_of_one_key_agree_also_with_clocks_a_day_apart(file_ground: Ground, record: Record) -> None:
    races.run_twins(file_ground, record)
    record.case("clock", "apart", lambda: races.twins_in_time(file_ground))
    assert findings(record) == []


@pytest.mark.fault
def test_a_full_disk_ends_with_78_and_the_next_run_goes_on(file_ground: Ground, record: Record) -> None:
    if reason := disk.may_mount():
        pytest.skip(reason)
    disk.run(file_ground, record, times=2)
    assert findings(record) == [] and "78" in record.value["cases"][0]["outcome"]


def test_a_faulty_network_gives_the_same_digests_or_75(s3_server: object, tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json", "s3", SEED)
    with open_ground("s3", tmp_path / "torture", SEED, stages=STAGES) as ground:
        network.run(ground, record, rates=(0.2,))
    assert findings(record) == [] and "same digests" in record.value["cases"][0]["outcome"]


@pytest.mark.fault
def test_misplaced_objects_stop_readers_verify_and_gc(file_ground: Ground, record: Record) -> None:
    misplaced.run(file_ground, record, times=1)
    assert len(record.value["cases"]) == 5
    assert findings(record) == []


def test_the_survey_sees_damage_loss_and_leftovers(file_ground: Ground) -> None:
    with file_ground.place() as place:
        assert isinstance(place, FilePlace)
        run_stage("curate", place, file_ground.folder)
        before = survey(place)
        assert before.faults == [] and leftovers(before) == [] and len(before.manifests) >= 3
        name = next(n for n in before.names if n.endswith("train-00000-of-00001.parquet"))
        place.write(name, flips.flipped(place.read(name), random.Random(1)))
        assert survey(place).faults == [f"{name}: is damaged"]
        place.delete([name])
        assert survey(place).faults == [f"{name}: is missing"]
        manifest = next(n for n in before.manifests if "/curate/" in n)
        place.delete([manifest])
        after = survey(place)
        assert lost(before, after) == [f"{manifest}: gone"]
        assert len(after.faults) == 1 and "cannot be followed" in after.faults[0]
        assert leftovers(after), "files that no manifest names"


def test_a_stopped_torture_goes_on_and_an_exception_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    first = Record(path, "file", 1)
    first.case("part", "good", lambda: ("fine", []))
    first.case("part", "bad", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    again = Record(path, "file", 1)
    again.case("part", "good", lambda: pytest.fail("was tried before"))
    assert [c["name"] for c in again.value["cases"]] == ["good", "bad"]
    assert findings(again) == ["ZeroDivisionError: division by zero"]
    assert Record(path, "file", 2).value["cases"] == []


@pytest.mark.parametrize(
    ("kind", "name", "writer"),
    [
        ("os.link", "/cas/tokenizer/*/MANIFEST.json", "tokenizer"),
        ("PUT", "/bucket/x/cas/train/*/MANIFEST.json", "train"),
        ("os.rename", "/pointers/torture/curate.json", "pointers"),
        ("PUT", "/b/x/pointers/torture/champion.json", "champion"),
        ("os.link", "/pointers/torture/history/000001.json", "history"),
        ("os.rename", "/runs/train/*/checkpoints/latest", "checkpoint"),
        ("os.rename", "/runs/train/*/export", "export"),
        ("os.rename", "/objects/*/*", "scratch"),
        ("open", "/cas/tokenizer/*/MANIFEST.json", ""),
        ("GET", "/bucket/x/cas/train/*/MANIFEST.json", ""),
    ],
)
def test_a_commit_is_known_by_what_is_written(kind: str, name: str, writer: str) -> None:
    assert writer_of(kind, name) == writer


def test_names_of_two_runs_are_equal_without_their_ids() -> None:
    names = (f"/cas/train/{c * 64}/{c * 12}/.tmp-{c * 32}" for c in "ab")
    assert {normalized(name) for name in names} == {"/cas/train/*/*/.tmp-*"}
