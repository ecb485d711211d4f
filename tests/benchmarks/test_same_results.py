"""What benchmarks/same_results.py says of two stores: equal ones are equal, and every change is found."""

from __future__ import annotations

import fnmatch
import json
import re
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks")]

from same_results import LEFT_OUT, Store, compare, difference, make  # noqa: E402


def unpack(folder: Path) -> Path:
    """A small store of two champions (tests/data/store-3328ac6.sh); its root, below `folder`."""
    with tarfile.open(ROOT / "tests/data/store-3328ac6.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("a"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("b"))


def found(a: Path, b: Path) -> list[str]:
    """Every difference, `row: what`."""
    rows = compare(Store(a), Store(b))
    return [f"{name}: {message}" for name, row in rows.items() for message in row.differences]


def changed(path: Path) -> bytes:
    """The file with one thing more or other in it, of its own format."""
    data = path.read_bytes()
    if path.suffix == ".json" and "cas" in path.parts and path.name not in ("MANIFEST.json", "report.json"):
        return data + b" "  # content: any byte counts
    if path.suffix == ".json":
        return json.dumps({**json.loads(data), "something_new": 1}, ensure_ascii=False).encode()
    if path.suffix == ".jsonl":
        return data + b'{"something_new": 1}\n'
    if path.suffix == ".yaml":
        return data + b"something_new: 1\n"
    if path.suffix == ".prom":
        return data + b"yanmo_something_new 1\n"
    return data[:-1] + bytes([data[-1] ^ 1]) if data else b"1"


def test_a_store_equals_itself_whatever_it_is_called(kept: Path, other: Path) -> None:
    rows = compare(Store(kept), Store(other))
    assert not any(row.differences for row in rows.values())
    names = ("documents", "evaluation set", "balance's choice", "tokenizer", "tokens", "weights")
    names += ("bits per document", "baselines, writing", "verdict", "champion, pointers", "records", "keys")
    assert all(rows[name].compared for name in names)


@pytest.mark.long
def test_a_change_of_any_file_that_is_not_named_as_left_out_is_found(kept: Path, other: Path) -> None:
    compared = 0
    for path in sorted(p for p in other.rglob("*") if p.is_file()):
        name = path.relative_to(other).as_posix()
        data, new = path.read_bytes(), changed(path)
        path.unlink()  # a hard link of the store to another name must not change with it
        path.write_bytes(new)
        left_out = any(fnmatch.fnmatchcase(name, pattern) for pattern in LEFT_OUT)
        assert bool(found(kept, other)) != left_out, name
        path.write_bytes(data)
        compared += not left_out
    assert compared > 80 and not found(kept, other)


def test_a_file_that_only_one_side_has_is_found(kept: Path, other: Path) -> None:
    new = other / "cas" / "news.txt"
    new.write_text("x")
    assert found(kept, other) == ["other files: cas/news.txt: only in B"]
    assert found(other, kept) == ["other files: cas/news.txt: only in A"]
    new.unlink()


def test_times_and_drawn_numbers_of_records_do_not_count_and_figures_do(kept: Path, other: Path) -> None:
    (path,) = sorted(other.glob("cas/train/*/*/metrics.jsonl"))[:1]
    before = path.read_bytes()
    lines = [json.loads(line) for line in before.splitlines()]
    lines[0]["seconds"] += 1
    path.write_text("\n".join(map(json.dumps, lines)))
    assert not found(kept, other)
    lines[0]["loss"] += 1e-12
    path.write_text("\n".join(map(json.dumps, lines)))
    (said,) = found(kept, other)
    assert re.match(r"records: train(#\d)?/metrics.jsonl: \[0\].loss: ", said)
    path.write_bytes(before)


def test_the_first_byte_that_differs_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").write_bytes(b"abd!")
    assert difference(tmp_path / "a", tmp_path / "b") == "byte 2 of 3 and 4"
    assert difference(tmp_path / "a", tmp_path / "none") == "missing in B"


def test_a_side_made_with_other_steps_is_not_overwritten_and_a_finished_one_is_used(tmp_path: Path) -> None:
    (tmp_path / "side.json").write_text(json.dumps({"steps": 1}))
    with pytest.raises(SystemExit, match="other steps"):
        make("0" * 40, tmp_path, 2)
    make("0" * 40, tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["side.json"]
