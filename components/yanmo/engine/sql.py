"""Tables of one run in DuckDB, for what is decided over a whole corpus.

They lie in a file of a temporary folder: of a table in memory DuckDB keeps some bytes of each row, whatever
else it moves to disk, so that 7 million rows of 33 columns do not fit into 128 MB. DuckDB gives rows in no
order of its own: a query whose rows are used one after the other ends with ORDER BY of a total key.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from yanmo.common.control_group import free_memory
from yanmo.common.errors import DiskFull

_MEMORY, _PER_THREAD, _PER_DOCUMENT, _BESIDE = 64 << 20, 64 << 20, 16, 100 << 20
"""Bytes that DuckDB's buffers may take, more of them for each thread and each document, and bytes that it
takes beside them. It sorts and joins on disk, but 128 MB were too little for 7 million documents."""
_LEAST = 64 << 20
_ON_DISK = 400
"""Bytes that a document takes in DuckDB's folder at most."""
_PREFIX = "yanmo-tables-"
_MAKING_SECONDS = 60.0
_MOST_THREADS = 8
_ROWS = 1 << 17
_FULL = {
    "No space left": errno.ENOSPC,
    "File too large": errno.EFBIG,
    "quota": errno.EDQUOT,
    "max_temp_directory_size": errno.ENOSPC,
}
_OF_THE_MACHINE = (
    duckdb.IOException,
    duckdb.OutOfMemoryException,
    duckdb.TransactionException,
    duckdb.FatalException,
)
"""What DuckDB raises where there is no room: also when what it has made is written at last."""


class Tables:
    """A database of its own, which ends with this object."""

    def __init__(self, threads: int = 1, documents: int = 0) -> None:
        """Args:
        documents: how many the tables are of, about; they may take so much more memory, and an error says
            what they may take on disk.
        """
        self._needs = documents * _ON_DISK
        threads = min(max(threads, 1), _MOST_THREADS)
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(OSError):  # a file system without locks, on which nothing is removed either
            fcntl.flock(lock, fcntl.LOCK_EX)
        _remove_left(self.folder.parent)
        limit = _MEMORY + threads * _PER_THREAD + documents * _PER_DOCUMENT
        if (free := free_memory()) is not None:
            limit = max(_LEAST, min(limit, free - _BESIDE))
        with self._naming():
            self._database = duckdb.connect(
                self.folder / "tables.db",
                config={
                    "fsync_mode": "NONE",  # nobody reads it after this process
                    "memory_limit": f"{limit >> 10}KiB",
                    "temp_directory": str(self.folder),
                    "threads": threads,
                    "preserve_insertion_order": False,
                    "autoinstall_known_extensions": False,
                },
            )
        self._database.execute("set enable_progress_bar = false")  # it would go into the log
        weakref.finalize(self, _end, self._database, self.folder, lock)

    def run(self, sql: str, **values: Any) -> None:
        """Run a statement; `values` are its parameters, `$name` each."""
        with self._naming():
            self._database.execute(sql, values or None)

    def rows(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query, which are few."""
        with self._naming():
            return self._database.execute(sql, values or None).fetchall()

    def value(self, sql: str, **values: Any) -> Any:
        """Return the only value of a query."""
        return self.rows(sql, **values)[0][0]

    def table(self, sql: str, **values: Any) -> pa.Table:
        """Return the rows of a query, which fit into memory."""
        with self._naming():
            return self._database.sql(sql, params=values or None).to_arrow_table()

    def batches(self, sql: str, rows: int = _ROWS, **values: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query, so many together, while others may be asked."""
        with self._naming(), contextlib.closing(self._database.cursor()) as own:
            yield from own.sql(sql, params=values or None).to_arrow_reader(rows)

    def by_file(self, sql: str, **values: Any) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of a query that are of one file together: the file's number, and its rows.

        Args:
            sql: gives a column `file`, and is ordered by it.
        """
        left: pa.Table | None = None
        for batch in self.batches(sql, **values):
            rows = pa.Table.from_batches([batch])
            left = rows if left is None else pa.concat_tables([left, rows])
            files = left["file"].to_numpy()
            while files[0] != files[-1]:
                count = int(files.searchsorted(files[0], side="right"))
                yield int(files[0]), left.slice(0, count)
                left, files = left.slice(count), files[count:]
        if left is not None:
            yield int(left["file"][0].as_py()), left

    def add(self, table: str, /, **columns: Any) -> None:
        """Make a table of arrays or lists, in the place of one of this name."""
        self._take(f"create or replace table {table} as from given", columns)

    def append(self, table: str, /, **columns: Any) -> None:
        """Add rows to a table, by the names of their columns."""
        self._take(f"insert into {table} by name from given", columns)

    def _take(self, sql: str, columns: dict[str, Any]) -> None:
        with self._naming(), contextlib.closing(self._database.cursor()) as own:
            own.register("given", pa.table(columns))
            own.execute(sql)

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Say where there is no room: DuckDB's own errors are of no use to who has to make some."""
        try:
            yield
        except _OF_THE_MACHINE as error:
            for words, number in _FULL.items():
                if words in str(error):
                    full = DiskFull(number, str(error), str(self.folder.parent))
                    full.needs = self._needs
                    raise full from error
            if isinstance(error, duckdb.OutOfMemoryException):
                raise MemoryError(str(error)) from error
            raise


def _end(database: duckdb.DuckDBPyConnection, folder: Path, lock: int) -> None:
    database.close()
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _remove_left(parent: Path) -> None:
    """Remove folders that killed processes have left: those that nobody holds, and that are not just made."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                if time.time() - os.fstat(lock).st_mtime > _MAKING_SECONDS:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
            finally:
                os.close(lock)


def parquet(paths: str) -> str:
    """Return the relation of the rows of Parquet files, with the columns `file_index` and `file_row_number`.

    Folders are no columns: DuckDB would take `genre=x` in the path of a store for one.

    Args:
        paths: the parameter that holds them, such as `$mapped`: `literally` the paths.
    """
    return f"read_parquet({paths}, file_row_number = true, hive_partitioning = false)"


def literally(paths: Sequence[Path]) -> list[str]:
    """Return paths for `parquet`, in which `[`, `*` and `?` stand for themselves."""
    return ["".join(f"[{c}]" if c in "[*?" else c for c in str(path)) for path in paths]
