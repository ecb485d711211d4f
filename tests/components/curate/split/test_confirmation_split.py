"""The third held-out split: apart from the others, and never in training."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.chinese.text_runs import Runs
from yanmo.curate.split.hold_out import SplitSize, hold_out
from yanmo.engine.sql import Tables
from yanmo.store.manifest import file_sha256

FIXTURE = Path(__file__).parents[3] / "data" / "documents.jsonl"
SMALL = ("--min-split-documents", "2", "--confirm-share", "0.1")
"""With these the fixture is enough for three splits."""
HAN = "春眠不觉晓处闻啼鸟夜来风雨声花落知多少白日依山尽黄河入海流欲穷千里目更上一层楼床前明月光疑是地霜"
Run = Callable[..., Any]
Record = dict[str, Any]


def texts_of(output: Any, split: str) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [pq.read_table(path, partitioning=None) for path in output.paths(f"{split}-*.parquet")]
    return list(pa.concat_tables(tables).to_pylist())


def digests(output: Any, *splits: str) -> dict[str, str]:
    return {p.name: file_sha256(p) for s in splits for p in output.paths(f"{s}-*.parquet")}


def poems(number: int, seed: int = 0, **fields: str) -> list[Record]:
    draw = random.Random(seed)
    return [
        {
            "text": "\n".join("".join(draw.choices(HAN, k=7)) + "。" for _ in range(8)),
            "genre": "shi",
            "title": f"{seed}-{i}",
            "author": f"author {i % 40}",
            "source": "a",
            **fields,
        }
        for i in range(number)
    ]


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 300), st.integers(0, 99)), min_size=1, max_size=300)
)
def test_a_third_split_leaves_the_first_two_as_they_are(rows: list[tuple[int, int, int]]) -> None:
    sizes = [SplitSize(characters=n, share=s, min_documents=3) for n, s in ((400, 0.1), (100, 0.03))]
    third = SplitSize(characters=200, share=0.05, min_documents=3)
    tables = Tables()
    columns = dict(zip(("genre", "characters", "unit"), map(np.array, zip(*rows, strict=True)), strict=True))
    tables.add("free", position=np.arange(len(rows)), **columns)
    two, three = hold_out(tables, "free", sizes), hold_out(tables, "free", [*sizes, third])
    assert [s.tolist() for s in three[:2]] == [s.tolist() for s in two]
    assert not set(three[2].tolist()) & {i for s in two for i in s.tolist()}


def test_a_new_set_has_a_confirmation_split_and_the_same_test_and_valid(curate: Run) -> None:
    with_it = curate(FIXTURE, *SMALL).output("evaluation_set")
    without = curate(FIXTURE, *SMALL, "--confirm-characters", "0", store="b").output("evaluation_set")
    assert digests(with_it, "test", "valid") == digests(without, "test", "valid")
    assert not without.entries("confirm-*.parquet")
    assert with_it.manifest.counts["documents"]["confirm"].keys() == {"诗", "词", "文", "赋"}
    rows = [texts_of(with_it, split) for split in ("test", "valid", "confirm")]
    ids = [{r["id"] for r in each} for each in rows]
    assert len(set.union(*ids)) == sum(map(len, ids)) and all(r["split"] == "confirm" for r in rows[2])


def test_training_text_knows_nothing_of_the_confirmation_split(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path]
) -> None:
    curated = curate(FIXTURE, *SMALL)
    confirm = texts_of(curated.output("evaluation_set"), "confirm")
    train = [r["text"] for r in curated.rows("train")]
    runs = Runs.of([r["text"] for r in confirm], 13)
    assert len(confirm) > 5 and not runs.found_in(train).any()
    # Later text: a near copy and a quotation of a held-out document stay out as well.
    longest = max((r["text"] for r in confirm), key=len)
    quotes = {"text": "君不闻古人有言乎，" + longest[:40] + "云云。", "genre": "wen", "source": "z"}
    copy = {"text": longest.replace("，", "、"), "genre": "wen", "source": "z"}
    again = curate(write_jsonl("more.jsonl", [*lines, quotes, copy]), *SMALL)
    assert not [r for r in again.rows("train") if r["source"] == "z"]


def test_authors_of_the_confirmation_split_are_held_out_whole(
    curate: Run, write_jsonl: Callable[..., Path]
) -> None:
    path = write_jsonl("a.jsonl", poems(800))
    curated = curate(path, "--split-by", "author", "--confirm-share", "0.1", "--min-split-documents", "2")
    confirm = {r["author"] for r in texts_of(curated.output("evaluation_set"), "confirm")}
    assert confirm and not confirm & {r["author"] for r in curated.rows("train")}


@pytest.mark.long(few=3)
@pytest.mark.parametrize("number", [1, 2, 4, 5, 9, 14, 15, 30, 60, 110, 200])
def test_no_size_of_text_fails_because_of_the_third_split(
    curate: Run, write_jsonl: Callable[..., Path], number: int
) -> None:
    path = write_jsonl("a.jsonl", poems(number, seed=number))
    ends = {}
    for name, more in (("with", ()), ("without", ("--confirm-characters", "0"))):
        for code in (0, 65):
            try:
                ends[name] = code, curate(path, *more, store=name, expect=code)
                break
            except AssertionError:
                continue
    assert ends["with"][0] == ends["without"][0]
    if not ends["with"][0]:
        has_it = bool(ends["with"][1].output("evaluation_set").entries("confirm-*.parquet"))
        assert has_it == (number >= 110)


def test_a_text_too_small_for_three_splits_says_what_follows(
    curate: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    curate(FIXTURE)
    stderr = capsys.readouterr().err
    assert "no confirmation split: the text is too small for three" in stderr
    assert "--without-confirmation" in stderr and "another --channel" in stderr


def test_an_exchanged_pointer_of_the_evaluation_set_is_mended_as_its_message_says(
    curate: Run, write_jsonl: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_jsonl("a.jsonl", poems(300))
    before = curate(path)
    pinned = before.output("evaluation_set")
    root = Path(pinned.store.uri.removeprefix("file://")) / "pointers" / "dev"
    one, other = root / "evaluation_set.json", root / "curate.json"
    first, second = one.read_text(), other.read_text()
    one.write_text(second)
    other.write_text(first)
    curate(path, expect=65)
    stderr = capsys.readouterr().err
    assert "yanmo curate --evaluation-set evaluation_set/KEY" in stderr
    curate(path, "--evaluation-set", f"evaluation_set/{pinned.manifest.key}")
    assert (json.loads(one.read_text()), json.loads(other.read_text())) == (
        json.loads(first),
        json.loads(second),
    )
    curate(path)


def test_shared_runs_with_the_confirmation_split_alone_are_no_new_error(
    curate: Run, write_jsonl: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_jsonl("a.jsonl", poems(300))
    (known,) = [r["text"] for r in texts_of(curate(path).output("evaluation_set"), "confirm")[:1]]
    quoting = [{**r, "text": known[:16] + "\n" + r["text"]} for r in poems(120, seed=9)]
    write_jsonl("a.jsonl", [*poems(300), *quoting])
    again = curate(path)  # a quarter of all documents, above --max-overlap-share
    assert "because of the confirmation split alone" in capsys.readouterr().err
    assert again.report()["dropped"]["overlap"]["诗"]["documents"] == 120
    test = texts_of(again.output("evaluation_set"), "test")[0]["text"]
    quoting = [{**r, "text": test[:16] + "\n" + r["text"]} for r in poems(120, seed=8)]
    write_jsonl("a.jsonl", [*poems(300), *quoting])
    curate(path, expect=65)
