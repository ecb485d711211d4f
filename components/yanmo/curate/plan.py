"""Phase `plan`: decides in SQL, over small tables, which copies stay.

documents   a row for each document of the mapped files, from the signed ones beside them
texts       a row for each text that is compared: the best of its exact copies

Nothing depends on the order of files or rows: copies are ordered by their content, texts by the digest of
what is compared of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from yanmo.curate.duplicates.shingles import SHINGLE
from yanmo.engine.sql import Tables, literally, parquet
from yanmo.formats.licenses import Allowed
from yanmo.formats.records import UNKNOWN_AUTHORS

_MARKED = 40
"""A text with at least one punctuation mark per this many units that are compared counts as punctuated."""

_GENRES = f"""
create or replace type genre as enum (select distinct genre from {parquet("$signed")} order by genre)
"""
_DOCUMENTS = f"""
create or replace table documents as
select file_index::integer as file, file_row_number::integer as row,
    left(id, 32)::uuid as id, hex(cluster)::uuid as cluster, genre::genre as genre,
    coalesce(license, '') as license, characters::integer as characters, {{owner}} as owner,
    units >= {SHINGLE} as is_long,
    forbidden is not null as is_forbidden,
    row_number() over (order by
        is_forbidden, marks::bigint * {_MARKED} < units, lacunae, units desc, marks desc,
        left(id, 32)::uuid, whole, file, row
    )::integer as rank
from {parquet("$signed")}
left join forbidden on forbidden = coalesce(license, '')
"""
"""rank: allowed before forbidden, punctuated before unpunctuated, then fewer lost characters, longer, more
punctuation, smaller id, smaller digest of all fields: the best of any copies has the smallest. id: the first
half. owner: digest of the author or source that must not be divided between splits, null where unknown."""

_OWNER = "case when lower({0}) not in (select name from unknown) then left(sha256({0}), 32)::uuid end"

_TEXTS = """
create or replace table texts as
select *, position as home, position as kept_for, 0::tinyint as reason
from (
    select (row_number() over (order by cluster) - 1)::integer as position, documents.*, copies
    from (select min(rank) as rank, count(*) as copies from documents group by cluster)
    join documents using (rank)
)
"""
"""position: the place of a text's digest among all. home: the smallest position in its cluster. kept_for: the
position of the text that is kept for it. reason: why it is not in train, an index into corpus.REASONS."""


def read_documents(
    tables: Tables, signed: Sequence[Path], owner: str = "", allowed: Allowed | None = None
) -> None:
    """Make the table of all documents in the signed files.

    Args:
        owner: column that must not be divided between splits, `author` or `source`; "" for none.
        allowed: licences that are allowed; None for all.
    """
    files, forbidden = literally(signed), []
    if allowed:
        query = f"select distinct coalesce(license, '') from {parquet('$signed')}"
        names = [name for (name,) in tables.rows(query, signed=files)]
        forbidden = [name for name in names if not allowed.allows(name)]
    tables.add("forbidden", forbidden=pa.array(forbidden, pa.string()))
    tables.add("unknown", name=pa.array(sorted(UNKNOWN_AUTHORS), pa.string()))
    tables.run(_GENRES, signed=files)
    tables.run(_DOCUMENTS.format(owner=_OWNER.format(owner) if owner else "null::uuid"), signed=files)


def find_exact_copies(tables: Tables) -> None:
    """Make the table of texts: of documents with one digest the one of the smallest rank."""
    tables.run(_TEXTS)


def owner_digest(name: str) -> str | None:
    """Return the digest of an author or a source as `owner` has it; None for unknown ones."""
    return None if name.lower() in UNKNOWN_AUTHORS else hashlib.sha256(name.encode()).hexdigest()[:32]
