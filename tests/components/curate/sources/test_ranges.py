"""Ranges of a large file hold its records, each once, with their lines; whatever the file looks like."""

from __future__ import annotations

import io
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from yanmo.common.errors import StorageError
from yanmo.curate.sources import ranges
from yanmo.curate.sources.batch import Batch
from yanmo.curate.sources.batches import Reading, utf8_chunks
from yanmo.curate.sources.listing import Source, digest_files, find_files
from yanmo.curate.sources.ranges import Cut, Range, lines_in
from yanmo.store.file_store import FileStore

PIECES = st.sampled_from(
    ["天", "地玄黄", "a", "\n", "\n\n", "\r\n", "\n\r\n", " ", "\n \n", "b" * 9, "\ufeff"]
)


def cut_of(data: bytes, size: int, layout: str, limit: int) -> Cut:
    source = Source(
        uri="file:///a", name="a", form="txt", compression="", bytes=len(data), version="", sha256=""
    )
    boundaries = (b"\n",) if layout == "line" else (b"\n\n", b"\n\r\n")
    return Cut(source=source, layout=layout, boundaries=boundaries, size=size, limit=limit)


def read_all(cut: Cut) -> list[Batch]:
    lines = [number for segment in cut.segments() for number in lines_in(segment)]
    return [batch for part in cut.ranges(lines) if (batch := part.read())]


@given(st.lists(PIECES, min_size=1, max_size=60), st.integers(1, 40), st.sampled_from(["line", "block"]))
@example(["a", "\n\r\n", "b"], 2, "block")
@example(["a", "\n\r\n", "b"], 3, "block")
@example(["a", "\n\r\n", "b"], 4, "block")
def test_ranges_one_after_another_are_the_file(pieces: list[str], size: int, layout: str) -> None:
    data = "".join(pieces).encode()
    with in_memory(data):
        found = read_all(cut_of(data, size, layout, 1 << 20))
    assert b"".join(b.data for b in found) == data.replace("\ufeff".encode(), b"")
    at = 1
    for batch in found:
        assert batch.first == at
        at += batch.data.count(b"\n")
    for batch in found[:-1]:
        assert batch.data.endswith(b"\n"), "no record is cut"


@pytest.mark.parametrize("size", [3, 10, 50, 400])
def test_a_record_without_an_end_is_left_out_by_its_line_and_the_next_ones_stay(size: int) -> None:
    data = b"one\ntwo\n" + b"x" * 100 + b"\nfour\nfive\n"
    with in_memory(data), mock.patch.object(ranges, "_STEP_BYTES", 8):
        found = read_all(cut_of(data, size, "line", 20))
    if size < 400:
        assert b"".join(b.data for b in found) == b"one\ntwo\nfour\nfive\n"
        assert [line for b in found for line in b.too_long] == [3]
        assert sum(b.skipped for b in found) == 101
    four = next(b for b in found if b"four" in b.data)
    assert four.first + four.data[: four.data.index(b"four")].count(b"\n") == 4


class in_memory:
    """The file of every source holds `data`."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> None:
        opened = lambda source: io.BytesIO(self._data)  # noqa: E731
        self._patch = mock.patch.object(ranges, "opened", opened)
        self._patch.start()

    def __exit__(self, *error: object) -> None:
        self._patch.stop()


def source_of(path: Path) -> Source:
    return digest_files(FileStore(path.parent / "store"), find_files(str(path)))[0]


@pytest.mark.parametrize(
    ("name", "data", "is_cut"),
    [
        ("a.jsonl", b'{"text": "a"}\n' * 9000, True),
        ("a.json", b'{"text": "a"}\n' * 9000, True),
        ("a.json", b'[{"text": "a"},\n' + b'{"text": "a"},\n' * 9000 + b'{"text": "b"}]', False),
        ("a.txt", "天地玄黄\n\n".encode() * 9000, True),
        ("a.txt", "天地玄黄\n\n".encode("gb18030") * 9000, False),
        ("a.csv", b"text,title\n" * 9000, False),
        ("a.jsonl", b'{"text": "a"}\n', False),
    ],
)
def test_what_can_be_cut_is(name: str, data: bytes, is_cut: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    cut = Cut.of(source_of(tmp_path / name), Reading(), 1)
    assert (cut is not None) == is_cut
    if cut:
        assert cut.count > 1 and b"".join(b.data for b in read_all(cut)) == data


def test_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n' * 9000)
    cut = Cut.of(source_of(path), Reading(), 1)
    assert cut
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(StorageError, match="changed while it was read"):
        Range(cut, 0, 0).read()


def test_a_file_has_the_same_encoding_cut_or_whole(tmp_path: Path) -> None:
    """Its beginning says it, however much of it is read at a time."""
    line = '{"text": "天地玄黄宇宙洪荒日月盈昃辰宿列张"}\n'
    (tmp_path / "a.jsonl").write_bytes(line.encode() * 6000 + line.encode("gb18030") * 20_000)
    source = source_of(tmp_path / "a.jsonl")
    assert Cut.of(source, Reading(), 1) is not None
    assert utf8_chunks(source, lambda _: None)[0] == "utf-8"
