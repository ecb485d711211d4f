"""The plan as a pure function of its seed, the data, the checks on damage that is made, and nights here."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from torture.place import FilePlace

from nights import checks, growth, texts, variants
from nights.__main__ import THIRTY
from nights.local_road import LocalRoad, clock_variables
from nights.plan import (
    BLOCK,
    EVENTS,
    GROW,
    HERE,
    MOJIBAKE,
    ON_A_CLUSTER,
    ON_A_LAB,
    POISONS,
    QUIET,
    SAME,
    nights,
)
from nights.record import Outcome, Record, read_record
from nights.road import CHANNEL, NotHere
from nights.scorer import allowed
from nights.sitting import Sitting
from nights.table import summary, table

ROOT = Path(__file__).parents[2]
SEED_OF_THREE = 417
"""Of a plan whose second night has its run killed in train, and whose third has nothing new."""
seeds = st.integers(0, 2**32)
decks = st.sampled_from([ON_A_LAB, ON_A_CLUSTER, HERE])


@given(seeds, decks, st.integers(1, 30), st.integers(0, 30))
def test_a_plan_is_the_beginning_of_every_longer_plan_of_its_seed(
    seed: int, deck: tuple[str, ...], count: int, more: int
) -> None:
    assert nights(seed, count, deck) == nights(seed, count + more, deck)[:count]


@given(seeds, decks)
def test_every_ten_nights_meet_every_fault_and_every_kind_of_data_once(
    seed: int, deck: tuple[str, ...]
) -> None:
    planned = nights(seed, 30, deck)
    for begin in range(0, 30, BLOCK):
        block = planned[begin : begin + BLOCK]
        assert sorted(night.fault for night in block) == sorted(deck)
        assert sorted(night.data for night in block) == sorted(EVENTS)
    assert (planned[0].data, planned[0].fault) == (GROW, QUIET)
    assert all(night.fault == QUIET for night in planned if night.data == SAME)


@given(seeds)
def test_the_files_change_from_night_to_night_as_the_plan_says(seed: int) -> None:
    planned = nights(seed, 30)
    for before, night in itertools.pairwise(planned):
        old, new = set(before.shards), set(night.shards)
        if night.data == SAME:
            assert old == new
            continue
        poison = {shard for shard in old if shard.kind in POISONS}
        assert not poison & new, "what poisoned a night is gone in the next that changes anything"
        gone = old - new - poison
        if night.data == "shrink":
            assert len(gone) == 1 and not new - old
        else:
            assert not gone and {shard.kind for shard in new - old} == {GROW, night.data}


@given(seeds)
def test_no_two_files_hold_one_text_and_none_holds_what_is_held_back(seed: int) -> None:
    shards = {shard for night in nights(seed, 30) for shard in night.shards if shard.count}
    taken = [n for shard in shards for n in range(shard.begin, shard.begin + shard.count)]
    assert len(taken) == len(set(taken))
    assert max(taken) < 30_000, "the corpus has more texts, so none comes a second time"


def test_a_deck_without_quiet_nights_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 10 faults"):
        nights(1, 3, ("pod",) * 10)


def test_each_text_of_a_garbled_file_is_found_again() -> None:
    shards = [shard for night in nights(19, 30) for shard in night.shards if shard.kind == MOJIBAKE]
    found = [texts.texts_in(texts.bytes_of(shard, [])) for shard in shards]
    assert [len(each) for each in found] == [shard.count for shard in shards] and shards
    assert any("\x85" in text for each in found for text in each), "what cut the rows of night 4"


def test_texts_that_are_held_back_are_in_no_file() -> None:
    night = nights(19, 30)[-1]
    files = [texts.bytes_of(shard, []) for shard in night.shards if shard.kind == GROW]
    given_texts = {texts.folded(text) for file in files for text in texts.texts_in(file)}
    fresh = {texts.folded(text) for text in texts.fresh_texts()}
    assert len(fresh) > 100 and not fresh & given_texts


def test_garbled_texts_are_no_longer_the_texts() -> None:
    for number in range(3):
        assert texts.garbled("心許征南破虜歸", number) != "心許征南破虜歸"


class _Store:
    """A store with documents, as one would be without curate's help against poison."""

    def __init__(self, root: Path, learned: list[str], pinned: list[str]) -> None:
        self.place = FilePlace(root)
        self._output("curate", "train-0.parquet", learned)
        self._output("evaluation_set", "test-0.parquet", pinned)

    def _output(self, stage: str, name: str, of: list[str]) -> None:
        folder = self.place.root / "cas" / stage / "k"
        (folder / "a").mkdir(parents=True)
        pq.write_table(pa.table({"text": of}), folder / "a" / name)
        (folder / "MANIFEST.json").write_text("{}")
        reference = {"manifest_uri": f"cas/{stage}/k/MANIFEST.json", "content_digest": stage}
        pointers = self.place.root / "pointers" / CHANNEL
        pointers.mkdir(parents=True, exist_ok=True)
        (pointers / f"{stage}.json").write_text(json.dumps(reference))


def test_a_copy_of_the_evaluation_set_and_garbled_text_that_are_learned_are_found(tmp_path: Path) -> None:
    night = dataclasses.replace(nights(1, 1)[0], data="mojibake")
    bad = _Store(tmp_path / "bad", ["春眠", "蹇冭ū"], ["春 眠"])
    assert checks.poison_is_out(bad.place, CHANNEL, night, ["蹇冭ū"]) == [
        "1 texts of the evaluation set are learned from",
        "1 poisoned texts are learned from",
    ]
    good = _Store(tmp_path / "good", ["不覺曉"], ["春眠"])
    assert checks.poison_is_out(good.place, CHANNEL, night, ["蹇冭ū"]) == []


def test_a_held_lease_is_found(tmp_path: Path) -> None:
    lease = tmp_path / "runs/train/k/LEASE.json"
    lease.parent.mkdir(parents=True)
    lease.write_text(json.dumps({"expires_at": time.time() + 1000}))
    assert checks.held_leases(FilePlace(tmp_path)) == ["runs/train/k/LEASE.json"]
    lease.write_text(json.dumps({"expires_at": 0.0}))
    assert checks.held_leases(FilePlace(tmp_path)) == []


def test_a_worse_champion_is_told_from_what_the_seed_explains() -> None:
    spread = [12.0, 12.1, 12.05, 11.95, 12.0]
    limit = allowed(spread)
    assert 0.2 < limit < 0.4
    assert checks.champion_is_no_worse(12.0, 12.0 + limit * 0.99, spread) == []
    assert "worse by more than" in checks.champion_is_no_worse(12.0, 12.0 + limit * 1.01, spread)[0]


def test_growth_is_predicted_from_a_night_that_made_everything() -> None:
    came = {"curate": 100, "curate_map": 50, "train": 5000, "tokenizer": 400}
    measures = growth.measured(came, 1000)
    same = growth.predicted(measures, 1000, 0, has_other_files=False, makes=False)
    poisoned = growth.predicted(measures, 2000, 1000, has_other_files=True, makes=False)
    grown = growth.predicted(measures, 2000, 1000, has_other_files=True, makes=True)
    assert poisoned - same == 250 and grown - poisoned == 5000
    assert growth.is_as_predicted(110, 100) and not growth.is_as_predicted(140, 100)


def test_a_record_is_read_as_it_was_written_and_the_pages_show_it(tmp_path: Path) -> None:
    night = Outcome(
        number=1, sitting=1, data="copy", fault="clock", stage="train", clock=-660, verdict="promoted",
        champion="0123456789ab", fresh_bits=12.5, seconds=212.0, runs=2, findings=["too | much"],
    )  # fmt: skip
    record = Record(
        path=tmp_path / "r.json", seed=7, road="lab", store="s3://b/p", channel="nights", nights=[night]
    )
    record.save()
    assert read_record(record.path) == record
    assert "clock -0.2 h off in train" in table(record)
    assert len({row.count("|") for row in table(record).splitlines()}) == 1
    said = summary(record)
    assert "too | much" in said and all(len(line) <= 100 for line in said.splitlines())


def test_the_notes_show_the_record_that_lies_beside_the_harness() -> None:
    record = read_record(THIRTY) if THIRTY.exists() else None
    notes = (ROOT / "benchmarks/NOTES.md").read_text(encoding="utf-8")
    assert (record is None) == ("<!-- nights -->\n<!-- /nights -->" in notes)
    assert record is None or (table(record) in notes and summary(record) in notes)


def test_variants_of_the_pipeline_differ_in_one_stage_alone(tmp_path: Path) -> None:
    base = variants.compiled(tmp_path / "nights.yaml", "")
    plain = _executors(base)
    assert all(_variables(e)["YANMO_WAIT_SECONDS"] == "120" for e in plain.values())
    late = _executors(variants.with_clock(base, "train", -660))
    assert _variables(late["exec-train"])["FAKETIME"] == "-660s"
    assert {name for name in plain if plain[name] != late[name]} == {"exec-train"}
    *_, platform = yaml.safe_load_all(variants.with_little_disk(base, "train").read_text(encoding="utf-8"))
    mounts = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-train"][
        "emptyDirMounts"
    ]
    assert {
        "mountPath": "/scratch",
        "volumeName": "scratch",
        "medium": "Memory",
        "sizeLimit": "1Mi",
    } in mounts


def _executors(path: Path) -> dict[str, Any]:
    spec, _ = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return dict(spec["deploymentSpec"]["executors"])


def _variables(executor: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in executor["container"]["env"]}


@pytest.mark.parametrize("offset", (-660, 93_600))
def test_a_process_whose_clock_is_off_still_sleeps(offset: int) -> None:
    """With libfaketime alone each time.sleep ends with EINVAL, which ended the first run of a night."""
    try:
        variables = clock_variables(offset)
    except NotHere as reason:
        pytest.skip(str(reason))
    code = (
        "import time; began = time.monotonic(); time.sleep(0.2); print(time.time(), time.monotonic() - began)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True
    )
    now, slept = map(float, done.stdout.split())
    assert abs(now - offset - time.time()) < 60 and slept >= 0.2


def test_without_a_cluster_it_says_what_is_missing(tmp_path: Path) -> None:
    variables = {k: v for k, v in os.environ.items() if k not in ("KUBECONFIG", "KFP_ENDPOINT")}
    done = subprocess.run(
        [sys.executable, "-m", "nights", "--out", str(tmp_path)],
        env={**variables, "PYTHONPATH": str(ROOT / "tests")}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 78
    assert "KUBECONFIG and KFP_ENDPOINT not set" in done.stderr


@pytest.mark.road
def test_three_nights_here_with_a_killed_run_find_nothing_and_a_later_sitting_goes_on(tmp_path: Path) -> None:
    planned = nights(SEED_OF_THREE, 3, HERE)
    assert [(night.data, night.fault) for night in planned[1:]] == [(GROW, "pod"), (SAME, QUIET)]
    record = Record(path=tmp_path / "r.json", seed=SEED_OF_THREE, road="folder", store="", channel=CHANNEL)
    road = LocalRoad(FilePlace(tmp_path / "store"), tmp_path)
    Sitting(road, record, planned[:2], seeds=0).hold()
    again = read_record(record.path)
    last = Sitting(road, again, planned, seeds=0)
    last.hold()
    assert again.findings == []
    assert [night.sitting for night in again.nights] == [1, 1, 2]
    assert [night.runs for night in again.nights] == [1, 2, 1], "the killed night is saved by a second run"
    assert all(night.verdict for night in again.nights)
    assert last.leave_clean() == []
