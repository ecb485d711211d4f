"""What is decided over all documents in SQL: which copy stays, and what is held out."""

from __future__ import annotations

import hashlib
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.curate.duplicates.signing import SIGNED
from yanmo.curate.plan import find_exact_copies, owner_digest, read_documents
from yanmo.curate.split.hold_out import SplitSize, hold_out
from yanmo.engine.sql import Tables
from yanmo.formats.licenses import Allowed

Row = dict[str, Any]
_NUMBERS = ("marks", "lacunae", "units")


def planned(folder: Path, files: list[list[Row]], owner: str = "", allowed: Allowed | None = None) -> Tables:
    """The tables of documents with these fields: `id`, `cluster` and `whole` are any bytes."""
    paths = [folder / f"signed-{number}.parquet" for number in range(len(files))]
    for path, rows in zip(paths, files, strict=True):
        signed = [
            {field.name: "" if field.type == pa.string() else 0 for field in SIGNED}
            | {"characters": 1, "units": 20, "line": i, "genre": "诗"}
            | {name: row[name] for name in row.keys() & {"author", "license", "genre", *_NUMBERS}}
            | {"id": row["id"].ljust(16, b"\0").hex() + "0" * 32}
            | {name: row.get(name, row["id"]).ljust(16, b"\0") for name in ("cluster", "whole")}
            for i, row in enumerate(rows)
        ]
        pq.write_table(pa.Table.from_pylist(signed, schema=SIGNED), path)
    tables = Tables()
    read_documents(tables, paths, owner, allowed)
    find_exact_copies(tables)
    return tables


def ranked(tables: Tables) -> list[tuple[int, int]]:
    """File and row of each document, the best copy first."""
    return tables.rows("select file, row from documents order by rank")


ROWS: list[Row] = [
    {"id": b"a1", "cluster": b"c1", "marks": 0, "units": 90},
    {"id": b"a9", "cluster": b"c1", "marks": 7},
    {"id": b"a0", "cluster": b"c1", "marks": 7, "lacunae": 1},
    {"id": b"a2", "cluster": b"c1", "marks": 7},
    {"id": b"b1", "cluster": b"c0", "marks": 1},
    {"id": b"a2", "cluster": b"c1", "marks": 7, "whole": b"a1"},
    {"id": b"a3", "cluster": b"c1", "marks": 6},
]


@pytest.mark.parametrize("seed", range(5))
def test_the_punctuated_whole_copy_stays_whatever_the_order(tmp_path: Path, seed: int) -> None:
    rows = random.Random(seed).sample(ROWS, len(ROWS))
    cut = random.Random(seed).randrange(len(rows))
    files = [rows[:cut], rows[cut:]]
    tables = planned(tmp_path, files)
    found = tables.rows("select file, row, copies from texts order by position")
    kept = [files[file][row] for file, row, _ in found]
    assert [(row["id"], row.get("whole", row["id"])) for row in kept] == [(b"b1", b"b1"), (b"a2", b"a1")]
    assert [copies for _, _, copies in found] == [1, 6]


def test_copies_are_ordered_by_punctuation_then_lacunae_then_length_then_marks_then_id(
    tmp_path: Path,
) -> None:
    rows: list[Row] = [
        {"id": b"bare", "units": 100},
        {"id": b"torn", "marks": 5, "lacunae": 2, "units": 50},
        {"id": b"short", "marks": 5, "units": 20},
        {"id": b"long", "marks": 5, "units": 50},
        {"id": b"longer marked", "marks": 6, "units": 50},
        {"id": b"also longer", "marks": 6, "units": 50},
    ]
    found = [rows[row]["id"] for _, row in ranked(planned(tmp_path, [rows]))]
    assert found == [b"also longer", b"longer marked", b"long", b"short", b"torn", b"bare"]


WORDS = st.sampled_from([b"\0" * 8, b"a" * 7 + b"\0", b"a" * 8, b"b" * 8, b"\x80" * 8, b"\xff" * 8])
DIGESTS = st.tuples(WORDS, WORDS).map(b"".join)


@pytest.mark.long
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(
        st.lists(st.tuples(DIGESTS, DIGESTS, DIGESTS, *[st.integers(0, 3)] * 4), max_size=15),
        min_size=1,
        max_size=3,
    ).filter(any)
)
def test_the_order_of_copies_is_that_of_all_keys_in_turn(
    tmp_path: Path, files: list[list[tuple[Any, ...]]]
) -> None:
    names = ("id", "whole", "cluster", "marks", "units", "lacunae", "forbidden")
    rows: list[list[Row]] = [[dict(zip(names, row, strict=True)) for row in of_file] for of_file in files]
    for row in (row for of_file in rows for row in of_file):
        row |= {"units": row["units"] * 30, "license": "GPL" if row["forbidden"] > 1 else "MIT"}
    tables = planned(tmp_path, rows, allowed=Allowed.of("mit"))

    def key(place: tuple[int, int]) -> tuple[Any, ...]:
        row = rows[place[0]][place[1]]
        is_bare = row["marks"] * 40 < row["units"]
        first = (row["forbidden"] > 1, is_bare, row["lacunae"], -row["units"], -row["marks"])
        return (*first, row["id"], row["whole"], place)

    places = [(file, row) for file, of_file in enumerate(rows) for row in range(len(of_file))]
    assert ranked(tables) == sorted(places, key=key)
    best: dict[bytes, tuple[int, int]] = {}
    for file, row in sorted(places, key=key):
        best.setdefault(rows[file][row]["cluster"], (file, row))
    found = tables.rows("select file, row from texts order by position")
    assert found == [best[cluster] for cluster in sorted(best)]


def test_unknown_authors_are_no_group(tmp_path: Path) -> None:
    authors = ["李白", "佚名", "", "李白", "杜甫", "Anonymous"]
    rows = [{"id": b"%d" % i, "author": author} for i, author in enumerate(authors)]
    tables = planned(tmp_path, [rows], owner="author")
    query = "select replace(owner::varchar, '-', '') from documents order by row"
    found = [owner for (owner,) in tables.rows(query)]
    assert found == [owner_digest(author) for author in authors]
    assert found[0] == found[3] == hashlib.sha256("李白".encode()).hexdigest()[:32]
    assert found[1] is found[2] is found[5] is None and found[4] not in (None, found[0])


def held_out(genre: Any, characters: Any, group: Any, sizes: list[SplitSize]) -> list[Any]:
    """The rows that are held out for each split."""
    tables = Tables()
    names = [f"genre {number}" for number in np.asarray(genre).tolist()]
    rows = np.arange(len(names), dtype=np.int32)
    tables.add("free", position=rows, genre=names, characters=characters, unit=group)
    return hold_out(tables, "free", sizes)


SIZES = [
    SplitSize(characters=400, share=0.1, min_documents=3),
    SplitSize(characters=100, share=0.03, min_documents=3),
]


@pytest.mark.long
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 300), st.integers(0, 99)), min_size=1, max_size=300)
)
def test_held_out_splits_are_apart_and_within_their_budgets(rows: list[tuple[int, int, int]]) -> None:
    genre, characters, group = (np.array(column) for column in zip(*rows, strict=True))
    splits = held_out(genre, characters.astype(np.int32), group, SIZES)
    assert not set(splits[0].tolist()) & set(splits[1].tolist())
    for size, split in zip(SIZES, splits, strict=True):
        for number in set(genre.tolist()):
            of_genre = split[genre[split] == number]
            units = set(group[of_genre].tolist())
            whole = np.flatnonzero((genre == number) & np.isin(group, list(units)))
            assert of_genre.tolist() == whole.tolist(), "a group is torn apart"
            groups = len(set(group[genre == number].tolist()))
            least = min(size.min_documents, groups // 5)
            budget = min(size.characters, size.share * characters[genre == number].sum())
            assert least <= len(units) <= max(least, math.ceil(2 * size.share * groups))
            assert len(units) == least or characters[of_genre].sum() <= budget


def hold_out_each(characters: Any) -> list[Any]:
    characters = np.array(characters, dtype=np.int32)
    return held_out(np.zeros(len(characters)), characters, np.arange(len(characters)), SIZES)


def test_new_text_does_not_move_old_documents_between_splits_of_a_full_genre() -> None:
    characters = np.random.default_rng(0).integers(5, 40, 2000)
    before = hold_out_each(characters)[0]
    more = hold_out_each(np.append(characters, characters))[0]
    assert more.tolist() == before.tolist()  # a prefix of the order of digests, and the budget was full


def test_one_long_book_is_not_the_split() -> None:
    characters = np.array([5000, *[20] * 300])
    test, valid = hold_out_each(characters)
    assert 0 not in test and 0 not in valid
    assert (characters[test].sum(), characters[valid].sum()) == (400, 100)


def test_short_answers_beside_long_chapters_are_not_all_held_out() -> None:
    characters = np.array([*[20] * 400, *[10_000] * 40])
    sizes = [SplitSize(characters=50_000, share=0.1, min_documents=3)]
    (test,) = held_out(np.zeros(440), characters, np.arange(440), sizes)
    assert len(test) == 88 and test.max() < 400  # all of the 8,000 characters of answers would fit


def test_a_genre_of_books_still_gets_its_documents() -> None:
    test, valid = hold_out_each([9000] * 20)
    assert (len(test), len(valid)) == (3, 3)
