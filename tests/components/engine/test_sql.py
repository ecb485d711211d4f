"""DuckDB within its limits: what is beyond memory lies on disk, a full disk is named, nothing stays there."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import no_file_above

from yanmo.common.errors import DiskFull, ExitCode, advice, exit_code
from yanmo.engine.sql import Tables, literally

ROWS = 6_000_000
LARGE = f"create table numbers as select i, hash(i) as h, hash(i + 1) as k from range({ROWS}) t(i)"
"""144 MB, in fewer bytes of memory than DuckDB may take; sorting it takes more."""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_full_disk_ends_with_78_and_names_the_folder_and_what_it_needs(temporary: Path) -> None:
    tables = Tables(documents=7_500_000)
    with no_file_above(1 << 16), pytest.raises(DiskFull) as caught:
        tables.run(LARGE)
        tables.run("create table ordered as select * from numbers order by h, i")
    assert caught.value.errno in (errno.EFBIG, errno.ENOSPC) and caught.value.filename == str(temporary)
    assert exit_code(caught.value) == ExitCode.ENVIRONMENT
    shown = advice(caught.value)
    assert "(TMPDIR)" in shown and "up to 3,000 MB are needed there" in shown and str(temporary) in shown


def test_a_disk_that_is_full_when_a_small_table_is_written_is_named_too(temporary: Path) -> None:
    """DuckDB finds it at the commit."""
    tables = Tables()
    with no_file_above(0), pytest.raises(DiskFull):
        tables.run("create table small as select 1 as i")


@pytest.mark.usefixtures("temporary")
def test_a_disk_that_is_full_before_there_is_a_table_is_named_too() -> None:
    with no_file_above(0), pytest.raises(DiskFull):
        Tables()


@pytest.mark.long
def test_the_folder_goes_with_the_tables(temporary: Path) -> None:
    tables = Tables()
    tables.run(LARGE)
    tables.run("create table ordered as select * from numbers order by h, i")
    assert sum(path.stat().st_size for path in temporary.rglob("*") if path.is_file()) > 100e6
    del tables
    gc.collect()
    assert not [*temporary.iterdir()]


def test_what_a_killed_process_left_is_removed_and_what_another_one_holds_is_not(temporary: Path) -> None:
    left, just_made = temporary / "yanmo-tables-left", temporary / "yanmo-tables-new"
    for folder in (left, just_made):
        folder.mkdir()
        (folder / "spilled.tmp").touch()
    os.utime(left, (1, 1))
    held = Tables()
    os.utime(held.folder, (1, 1))
    own = Tables()
    assert {*temporary.iterdir()} == {just_made, held.folder, own.folder}


GROWTH = f"""
from pathlib import Path
from yanmo.engine.sql import Tables
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
tables = Tables()
tables.run("select 1")
before = peak()
tables.run({LARGE!r})
tables.run("create table ordered as select i, h, k, row_number() over (order by h, i) as n from numbers")
last, count = -1, 0
for batch in tables.batches("select h, n from ordered order by h, n"):
    numbers = batch["n"].to_numpy()
    assert numbers[0] > last and (numbers[1:] > numbers[:-1]).all()
    last, count = numbers[-1], count + len(numbers)
assert count == {ROWS}
print(peak() - before)
"""


@pytest.mark.long
def test_what_the_tables_hold_is_not_in_memory() -> None:
    done = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 240  # the two tables hold 330 MB, and are sorted


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(1, 9))
def test_rows_come_file_by_file_whatever_the_batches(files: list[int], rows: int) -> None:
    tables = Tables()
    tables.add("placed", file=np.array(files, np.int32), row=np.arange(len(files)))
    found = list(tables.by_file("select file, row from placed order by file, row", rows=rows))
    assert [number for number, _ in found] == sorted(set(files))
    for number, table in found:
        assert table["row"].to_pylist() == [i for i, file in enumerate(files) if file == number]


def test_tables_may_be_changed_while_rows_are_read() -> None:
    tables = Tables()
    tables.run("create table numbers as select i from range(500000) t(i)")
    seen = 0
    for batch in tables.batches("select i from numbers order by i", 100_000):
        tables.add("one", i=batch["i"].slice(0, 1))
        tables.run("delete from numbers where i in (select i from one)")
        seen += len(batch)
    assert seen == 500_000 > tables.value("select count(*) from numbers")


def test_names_of_files_are_no_patterns(tmp_path: Path) -> None:
    paths = [tmp_path / "a[1]*?.parquet", tmp_path / "it's.parquet"]
    for number, path in enumerate([*paths, tmp_path / "a1xx.parquet"]):
        pq.write_table(pa.table({"number": [number]}), path)
    rows = Tables().rows(
        "select file_index, number from read_parquet($paths, file_row_number = true) order by number",
        paths=literally(paths),
    )
    assert rows == [(0, 0), (1, 1)]


WIDE = ", ".join(f"(i + {n})::uinteger as c{n}" for n in range(40))


@pytest.mark.long
def test_a_wide_table_of_many_rows_leaves_room_for_what_is_done_with_it() -> None:
    """Of a table in memory DuckDB keeps the bits that say which values are null: here 75 MB."""
    tables = Tables()
    tables.run(f"create table wide as select i, {WIDE} from range(15_000_000) t(i)")
    tables.run("create table ordered as select i, hash(i) as h from wide order by h")
    assert tables.value("select count(*) from ordered join wide using (i)") == 15_000_000
