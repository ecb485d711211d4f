"""The plan of nights, the checks on damage that is made, and three nights here."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos import nights
from chaos.ground import open_ground
from chaos.nights import COPY, EVENTS, FAULTS, GROW, MOJIBAKE, QUIET, SAME, SHRINK, Files, Night
from chaos.place import FilePlace
from chaos.plan import tried


def test_ten_nights_meet_every_fault_and_every_kind_of_data() -> None:
    for seed in range(50):
        first, *others = nights.planned(seed, 10)
        assert (first.data, first.fault) == (GROW, QUIET)
        assert sorted(n.fault for n in others) == sorted(FAULTS)
        assert sorted(n.data for n in others) == sorted(EVENTS)
        assert all(n.fault == QUIET for n in others if n.data == SAME)
        assert nights.planned(seed, 25)[:10] == [first, *others]


def test_files_grow_and_shrink_and_poison_is_gone_in_the_next_night_that_changes_anything() -> None:
    files, counts, pinned = Files(random.Random(1)), [], [{"genre": "诗", "title": "", "text": "春眠"}]
    for number, data in enumerate((GROW, COPY, SAME, MOJIBAKE, SHRINK), 1):
        poison = files.change(Night(number, data, QUIET, "train", 0.0, 0), pinned)
        counts.append(len(files.now))
        assert (len(poison) > 0) == (data in (COPY, MOJIBAKE))
    assert counts == [3, 5, 5, 6, 4]
    rows = [json.loads(line)["text"] for data in files.now.values() for line in data.split(b"\n") if line]
    assert len(set(rows)) == len(rows), "no text of the corpus comes twice"


def store_of(root: Path, learned: list[str], pinned: list[str]) -> FilePlace:
    """A store with documents, as one would be without curate's help against poison."""
    for stage, name, of in (("curate", "train-0", learned), ("evaluation_set", "test-0", pinned)):
        folder = root / "cas" / stage / "k"
        (folder / "a").mkdir(parents=True)
        pq.write_table(pa.table({"text": of}), folder / "a" / f"{name}.parquet")
        pointers = root / "pointers" / nights.CHANNEL
        pointers.mkdir(parents=True, exist_ok=True)
        reference = {"manifest_uri": f"cas/{stage}/k/MANIFEST.json", "content_digest": stage}
        (pointers / f"{stage}.json").write_text(json.dumps(reference))
    return FilePlace(root)


def test_a_copy_of_the_evaluation_set_and_garbled_text_that_are_learned_are_found(tmp_path: Path) -> None:
    bad = store_of(tmp_path / "bad", ["春眠", "蹇冭ū"], ["春 眠"])
    assert nights.poison_is_out(bad, ["蹇冭ū"]) == [
        "1 texts of the evaluation set are learned from",
        "1 poisoned texts are learned from",
    ]
    assert nights.poison_is_out(store_of(tmp_path / "good", ["不覺曉"], ["春眠"]), ["蹇冭ū"]) == []


def test_a_held_lease_is_found(tmp_path: Path) -> None:
    lease = tmp_path / "runs/train/k/LEASE.json"
    lease.parent.mkdir(parents=True)
    for seconds, found in ((1000, ["runs/train/k/LEASE.json"]), (-1000, [])):
        lease.write_text(json.dumps({"expires_at": time.time() + seconds}))
        assert nights.held_leases(FilePlace(tmp_path)) == found


@pytest.mark.road
def test_three_nights_here_with_a_killed_run_find_nothing(tmp_path: Path) -> None:
    seed = next(n for n in range(1000) if [x.fault for x in nights.planned(n, 3)] == [QUIET, "pod", QUIET])
    with open_ground("file", tmp_path, seed, count=3) as ground:
        *three, gc = map(tried, nights.cases(ground))
    assert [one.findings for one in (*three, gc)] == [[]] * 4
    assert "after 2 runs" in three[1].outcome, "the killed night is saved by a second run"
