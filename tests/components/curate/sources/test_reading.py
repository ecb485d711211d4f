from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from yanmo.common.errors import DataError, StorageError
from yanmo.curate.sources import unpacking
from yanmo.curate.sources.batches import Batch, Reading, read_batches
from yanmo.curate.sources.listing import digest_files, find_files
from yanmo.store.file_store import FileStore

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
AS_IT_COMES = Reading()
LINES = b"".join(b'{"text":"%d"}\n' % number for number in range(3000))


def read(
    path: Path, batch_bytes: int = 1000, columns: tuple[str, ...] = ("text",), how: Reading = AS_IT_COMES
) -> list[Batch]:
    (source,) = digest_files(FileStore(path.parent / "store"), find_files(str(path)))
    return list(read_batches(source, list(columns), batch_bytes, lambda count: None, how))


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("batch_bytes", [1, 100, 1 << 20])
def test_lines_come_whole_and_numbered_from_any_compression(
    tmp_path: Path, suffix: str, batch_bytes: int
) -> None:
    path = write(tmp_path, "a.jsonl" + suffix, PACK[suffix](LINES))
    batches = read(path, batch_bytes)
    assert b"".join(b.data for b in batches) == LINES
    assert all(b.data.endswith(b"\n") for b in batches)
    for batch in batches:
        assert b'"%d"' % (batch.first - 1) in batch.data.split(b"\n")[0]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst", ".bz2"])
def test_members_one_after_the_other_are_one_text(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path, "a.jsonl" + suffix, PACK[suffix](LINES[:5000]) + PACK[suffix](LINES[5000:]))
    assert b"".join(b.data for b in read(path)) == LINES


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst", ".bz2"])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_truncated_file_is_refused_by_name(tmp_path: Path, suffix: str, share: float) -> None:
    packed = PACK[suffix](LINES)
    path = write(tmp_path, "a.jsonl" + suffix, packed[: max(1, int(share * len(packed)))])
    with pytest.raises(DataError, match=rf"a\.jsonl\{suffix}: (truncated|damaged)"):
        read(path)
    damaged = bytearray(packed)
    damaged[0] ^= 0xFF
    damaged[int(share * len(packed))] ^= 0xFF
    with pytest.raises(DataError, match="damaged"):
        read(write(tmp_path, "a.jsonl" + suffix, bytes(damaged)))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst", ".bz2"])
@pytest.mark.parametrize("inside", ["", ".gz", ".xz", ".zst", ".bz2"])
def test_a_file_that_is_not_packed_as_its_name_says_is_told_what_it_is(
    tmp_path: Path, suffix: str, inside: str
) -> None:
    path = write(tmp_path, "a.jsonl" + suffix, PACK[inside](LINES) if inside else LINES)
    if inside == suffix:
        assert b"".join(b.data for b in read(path)) == LINES
        return
    what = rf"\({inside}\)" if inside else "plain text"
    with pytest.raises(
        DataError, match=rf"a\.jsonl\{suffix}: is .*{what}, and its name ends in \{suffix}: rename"
    ):
        read(path)


def test_blocks_are_cut_only_at_blank_lines(tmp_path: Path) -> None:
    text = "\n\n".join(f"第{n}首\n其二" for n in range(500)).encode()
    batches = read(write(tmp_path, "a.txt", text), batch_bytes=10)
    assert len(batches) > 0 and b"".join(b.data for b in batches) == text
    assert all(b.data.startswith("第".encode()) for b in batches)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_a_line_of_monstrous_length_is_skipped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setitem(unpacking.CHUNK_BYTES, "", chunk)
    monkeypatch.setattr("yanmo.curate.sources.batches.SAMPLE_BYTES", 1)
    good = [b'{"a":%d}' % n for n in range(4)]
    data = b"\n".join([good[0], b"x" * 20_000, good[1], good[2], b"y" * 9000, good[3], b"z" * 7000])
    batches = read(write(tmp_path, "a.jsonl", data), batch_bytes=100, how=Reading(max_record_bytes=5000))
    lines = {b.first + i: line for b in batches for i, line in enumerate(b.data.split(b"\n")) if line}
    assert lines == {1: good[0], 3: good[1], 4: good[2], 6: good[3]}
    assert [n for b in batches for n in b.too_long] == [2, 5, 7]
    assert sum(len(b.data) + b.skipped for b in batches) == len(data), "every byte is read or counted"


def test_rows_come_from_parquet_with_the_columns_that_are_there(tmp_path: Path) -> None:
    table = pa.table({"text": ["甲", "乙"], "genre": ["诗", "词"], "other": [1, 2]})
    pq.write_table(table, tmp_path / "a.parquet")
    (batch,) = read(tmp_path / "a.parquet", columns=("text", "title", "genre"))
    assert batch.data.to_pylist() == [{"text": "甲", "genre": "诗"}, {"text": "乙", "genre": "词"}]


def test_parquet_without_the_text_column_has_its_rows_and_the_names_of_all_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"content": ["甲"], "title": ["乙"], "x": [1]}), tmp_path / "a.parquet")
    (batch,) = read(tmp_path / "a.parquet", columns=("text", "title"))
    assert (batch.data.num_rows, batch.names) == (1, ("content", "title", "x"))


@pytest.mark.parametrize("keep", [4, 50, -9])
def test_truncated_parquet_is_refused_by_name(tmp_path: Path, keep: int) -> None:
    pq.write_table(pa.table({"text": ["甲"] * 100}), tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(DataError, match=r"a\.parquet: not a readable Parquet file"):
        read(write(tmp_path, "a.parquet", data[:keep]))


def test_a_file_that_changes_under_the_reader_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", LINES)
    (source,) = digest_files(FileStore(tmp_path / "store"), find_files(str(path)))
    batches = read_batches(source, ["text"], 1000, lambda count: None)
    next(batches)
    with path.open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(StorageError, match="changed while it was read"):
        list(batches)


@pytest.mark.parametrize("rows", [[0], [3], [9], [0, 1, 9], [4, 5], list(range(10)), []])
def test_rows_above_the_limit_are_left_out_by_number(tmp_path: Path, rows: list[int]) -> None:
    texts = ["长" * 2000 if n in rows else f"{n}" for n in range(10)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": texts, "title": ["x"] * 10}), path)
    batches = read(path, 1 << 20, how=Reading(max_record_bytes=5000))
    assert [number for b in batches for number in b.too_long] == [n + 1 for n in rows]
    found = {b.first + i: text for b in batches for i, text in enumerate(b.data["text"].to_pylist())}
    assert found == {n + 1: text for n, text in enumerate(texts) if n not in rows}
    assert all(b.limit == 5000 for b in batches if b.too_long) and max(b.data.nbytes for b in batches) < 5000


@pytest.mark.parametrize("suffix", [".xz", ".bz2", ".zst", ".gz"])
def test_what_unpacks_to_much_comes_in_small_pieces(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path, "a.txt" + suffix, PACK[suffix](b" " * 30_000_000 + b"\xe6\x98\xa5\n"))
    (source,) = digest_files(FileStore(tmp_path / "store"), find_files(str(path)))
    sizes = [len(piece) for piece in unpacking.unpacked(source, lambda count: None)]
    assert sum(sizes) == 30_000_004 and max(sizes) <= 1 << 20
