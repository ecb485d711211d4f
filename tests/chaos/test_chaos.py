"""A small chaos in every run of the tests: two stages, every kind of store that is here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from chaos import collect, disk, kills, network, races
from chaos.events import normalized, writer_of
from chaos.ground import Ground, open_ground
from chaos.hostile.damages import flipped
from chaos.place import FilePlace, leftovers, lost, survey
from chaos.plan import Case, Record, Skip, tried
from chaos.start import run_stage

SEED = 7
STAGES = ("curate", "balance")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("chaos")
    with open_ground("file", folder, SEED, stages=STAGES, brief=True) as ground:
        yield ground


def finds_nothing(*cases: Case) -> str:
    """Outcomes of cases that find nothing."""
    each = [tried(case) for case in cases]
    assert [finding for one in each for finding in one.findings] == []
    return "; ".join(one.outcome for one in each)


def test_kill_9_before_every_commit_of_two_stages_loses_nothing(ground: Ground) -> None:
    """A slow undisturbed run renews its lease more often than a fast one, so a moment may not come: again."""
    killed: set[str] = set()
    for number in range(4):
        journey = kills.Journey(ground, number)
        assert journey.travel()[1] == []
        killed |= journey.killed.keys()
        if not journey.missed:
            break
    assert killed >= {"curate_map", "evaluation_set", "curate", "balance"}


@pytest.mark.fault
def test_gc_that_is_killed_or_runs_beside_the_stages_breaks_nothing(ground: Ground) -> None:
    finds_nothing(*collect.cases(ground))


@pytest.mark.fault
def test_two_runs_of_one_key_agree_also_with_clocks_a_day_apart(ground: Ground) -> None:
    assert "1 of 2 made it" in finds_nothing(*races.twins(ground), *islice(races.clocks(ground), 1))


@pytest.mark.fault
def test_a_full_disk_ends_with_78_and_the_next_run_goes_on(ground: Ground) -> None:
    if reason := disk.may_mount():
        pytest.skip(reason)
    assert "78" in finds_nothing(*disk.cases(ground))


def test_a_faulty_network_gives_the_same_digests_or_75(s3_server: object, tmp_path: Path) -> None:
    with open_ground("s3", tmp_path, SEED, stages=STAGES, brief=True) as ground:
        assert "same content" in finds_nothing(next(network.cases(ground)))


def test_the_survey_sees_damage_loss_and_leftovers(ground: Ground) -> None:
    with ground.place() as place:
        assert isinstance(place, FilePlace)
        run_stage("curate", place, ground.folder)
        before = survey(place)
        assert before.faults == [] and leftovers(before) == [] and len(before.manifests) >= 3
        name = next(n for n in before.names if n.endswith("train-00000-of-00001.parquet"))
        place.write(name, flipped(place.read(name), random.Random(1)))
        assert survey(place).faults == [f"{name}: is damaged"]
        place.delete([name])
        assert survey(place).faults == [f"{name}: is missing"]
        manifest = next(n for n in before.manifests if "/curate/" in n)
        place.delete([manifest])
        after = survey(place)
        assert lost(before, after) == [f"{manifest}: gone"]
        assert len(after.faults) == 1 and "cannot be followed" in after.faults[0]
        assert leftovers(after), "files that no manifest names"


def test_a_plan_says_what_was_found_and_left_out_and_an_exception_is_a_finding(tmp_path: Path) -> None:
    def not_here() -> tuple[str, list[str]]:
        raise Skip("needs root")

    path = tmp_path / "file-1.jsonl"
    record = Record(path, "file", 1)
    bad = Case("part", "bad", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    record.try_all([Case("part", "good", lambda: ("fine", [])), bad, Case("more", "x", not_here)])
    assert record.findings == ["part: bad: ZeroDivisionError: division by zero"]
    assert record.table().splitlines()[1:] == [
        "part: 2 tried, 1 bad, 0 left out",
        f"  {'good':<44} fine",
        f"  {'bad':<44} BAD",
        "more: 1 tried, 0 bad, 1 left out",
        f"  {'x':<44} left out: needs root",
    ]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 4


@pytest.mark.parametrize(
    ("kind", "name", "writer"),
    [
        ("os.link", "/cas/tokenizer/*/MANIFEST.json", "tokenizer"),
        ("PUT", "/bucket/x/cas/train/*/MANIFEST.json", "train"),
        ("os.rename", "/pointers/chaos/curate.json", "pointers"),
        ("PUT", "/b/x/pointers/chaos/champion.json", "champion"),
        ("os.rename", "/runs/train/*/checkpoints/latest", "checkpoint"),
        ("os.rename", "/objects/*/*", "scratch"),
    ],
)
def test_a_commit_is_known_by_what_is_written(kind: str, name: str, writer: str) -> None:
    assert writer_of(kind, name) == writer


def test_names_of_two_runs_are_equal_without_their_ids() -> None:
    names = (f"/cas/train/{c * 64}/{c * 12}/.tmp-{c * 32}" for c in "ab")
    assert {normalized(name) for name in names} == {"/cas/train/*/*/.tmp-*"}
