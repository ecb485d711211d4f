"""What stays of a table of texts whose texts were let go: its columns of ids, row by row as they were.

Who looks for a document (`forbidden_text.rows_with`) reads it as it reads the table itself. Cost: about 35
bytes a text, as ids are sha256 in hexadecimal, and one reading of the table.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.errors import DataError, in_words

COLUMNS = ("id", "parent_id", "split")


def write_ids(source: Path, target: Path) -> None:
    """Write the columns of ids of the Parquet file `source`, in row groups of the same rows.

    Raises:
        DataError: it is not readable, or has no ids.
    """
    try:
        with pq.ParquetFile(source) as file:
            names = [name for name in COLUMNS if name in file.schema_arrow.names]
            if "id" not in names:
                raise DataError(f"{source}: expected a column `id`, found {file.schema_arrow.names}")
            schema = pa.schema([file.schema_arrow.field(name) for name in names])
            with pq.ParquetWriter(target, schema, compression="zstd", use_dictionary=["split"]) as writer:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group, columns=names)
                    writer.write_table(table.select(names), row_group_size=max(1, table.num_rows))
    except pa.ArrowInvalid as error:
        raise DataError(f"{source}: not a readable Parquet file: {in_words(error)}; restore it") from error
