"""The plan as a pure function of its seed, the data, the checks on damage that is made, and nights here."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.ground import open_ground
from chaos.nights import checks, sitting, texts
from chaos.nights.checks import CHANNEL
from chaos.nights.plan import BLOCK, EVENTS, FAULTS, GROW, MOJIBAKE, POISONS, QUIET, SAME, nights
from chaos.place import FilePlace
from chaos.plan import tried

seeds = st.integers(0, 2**32)


@given(seeds, st.integers(1, 30), st.integers(0, 30))
def test_a_plan_is_the_beginning_of_every_longer_plan_of_its_seed(seed: int, count: int, more: int) -> None:
    assert nights(seed, count) == nights(seed, count + more)[:count]


@given(seeds)
def test_every_ten_nights_meet_every_fault_and_every_kind_of_data_once(seed: int) -> None:
    planned = nights(seed, 30)
    for begin in range(0, 30, BLOCK):
        block = planned[begin : begin + BLOCK]
        assert sorted(night.fault for night in block) == sorted(FAULTS)
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
    shards = {shard for night in planned for shard in night.shards if shard.count}
    taken = [n for shard in shards for n in range(shard.begin, shard.begin + shard.count)]
    assert len(taken) == len(set(taken)) and max(taken) < 30_000, "no text of the corpus comes twice"


def test_each_text_of_a_garbled_file_is_another_and_is_found_again() -> None:
    shards = [shard for night in nights(19, 30) for shard in night.shards if shard.kind == MOJIBAKE]
    found = [texts.texts_in(texts.bytes_of(shard, [])) for shard in shards]
    assert [len(each) for each in found] == [shard.count for shard in shards] and shards
    assert any("\x85" in text for each in found for text in each), "what str.splitlines would cut"
    assert all(texts.garbled("心許征南破虜歸", number) != "心許征南破虜歸" for number in range(3))


def store_of(root: Path, learned: list[str], pinned: list[str]) -> FilePlace:
    """A store with documents, as one would be without curate's help against poison."""
    for stage, name, of in (("curate", "train-0", learned), ("evaluation_set", "test-0", pinned)):
        folder = root / "cas" / stage / "k"
        (folder / "a").mkdir(parents=True)
        pq.write_table(pa.table({"text": of}), folder / "a" / f"{name}.parquet")
        pointers = root / "pointers" / CHANNEL
        pointers.mkdir(parents=True, exist_ok=True)
        reference = {"manifest_uri": f"cas/{stage}/k/MANIFEST.json", "content_digest": stage}
        (pointers / f"{stage}.json").write_text(json.dumps(reference))
    return FilePlace(root)


def test_a_copy_of_the_evaluation_set_and_garbled_text_that_are_learned_are_found(tmp_path: Path) -> None:
    bad = store_of(tmp_path / "bad", ["春眠", "蹇冭ū"], ["春 眠"])
    assert checks.poison_is_out(bad, ["蹇冭ū"]) == [
        "1 texts of the evaluation set are learned from",
        "1 poisoned texts are learned from",
    ]
    assert checks.poison_is_out(store_of(tmp_path / "good", ["不覺曉"], ["春眠"]), ["蹇冭ū"]) == []


def test_a_held_lease_is_found(tmp_path: Path) -> None:
    lease = tmp_path / "runs/train/k/LEASE.json"
    lease.parent.mkdir(parents=True)
    lease.write_text(json.dumps({"expires_at": time.time() + 1000}))
    assert checks.held_leases(FilePlace(tmp_path)) == ["runs/train/k/LEASE.json"]
    lease.write_text(json.dumps({"expires_at": 0.0}))
    assert checks.held_leases(FilePlace(tmp_path)) == []


@pytest.mark.road
def test_three_nights_here_with_a_killed_run_find_nothing(tmp_path: Path) -> None:
    seed = next(n for n in range(1000) if [x.fault for x in nights(n, 3)] == [QUIET, "pod", QUIET])
    with open_ground("file", tmp_path, seed, count=3) as ground:
        *three, gc = map(tried, sitting.cases(ground))
    assert [one.findings for one in (*three, gc)] == [[]] * 4
    assert "after 2 runs" in three[1].outcome, "the killed night is saved by a second run"
