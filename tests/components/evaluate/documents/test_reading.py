"""Several training texts that hold nearly the same are read as one, each document once."""

import tempfile
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_commit import commit
from tiny_store import make_row

from yanmo.evaluate.documents.reading import distinct_batches, training_batches
from yanmo.evaluate.writing.copies import find_copies, nearest
from yanmo.formats.records import DOCUMENTS
from yanmo.store.opening import open_store

ROWS = [make_row("诗", "train", number) for number in range(12)]
COPY = {**make_row("诗", "train", 12), "parent_id": ROWS[0]["id"]}
EVERY = [*ROWS, COPY]
numbers = st.lists(st.integers(0, len(ROWS)), max_size=14, unique=True)
texts_of_nights = st.lists(st.tuples(numbers, st.integers(1, 4), st.booleans()), min_size=1, max_size=4)


def committed(store, night, held, group, in_two_files):
    """A text of rows ROWS[number], an augmented copy among them, in row groups of `group`."""
    rows = [EVERY[number] for number in held]
    cut = len(rows) // 2 if in_two_files else 0
    parts = [rows[:cut], rows[cut:]] if in_two_files else [rows]

    def write(part):
        table = pa.Table.from_pylist(part, schema=DOCUMENTS)
        return lambda path: pq.write_table(table, path, row_group_size=group)

    files = {
        f"train-{number:05d}-of-{len(parts):05d}.parquet": write(part) for number, part in enumerate(parts)
    }
    return commit(store, "curate", files, options={"night": night})


@settings(max_examples=15, deadline=None)
@given(texts_of_nights)
def test_each_document_once_and_nothing_else_is_found(nights):
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(str(Path(folder) / "store"))
        texts = [committed(store, night, *nights[night]) for night in range(len(nights))]
        seen, expected = set(), []
        for held, *_ in nights:
            fresh = [n for n in held if n not in seen and n < len(ROWS)]
            seen |= set(held)
            expected += [ROWS[n]["id"] for n in fresh]
        read = [d.id for batch in distinct_batches(texts) for d in batch]
        assert read == expected
        asked = [ROWS[n]["text"] for n in (0, 3, 7)] + ["明月几时有把酒问青天不知天上宫阙" * 2]
        every = [list(batch) for batch in chain.from_iterable(map(training_batches, texts))]
        plain, once = find_copies(asked, every, 8), find_copies(asked, distinct_batches(texts), 8)
        assert {n: v.tolist() for n, v in vars(plain).items()} == {
            n: v.tolist() for n, v in vars(once).items()
        }
        assert nearest(asked, every) == nearest(asked, distinct_batches(texts))
