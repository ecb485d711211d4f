"""The third held-out split, apart from the others and never in training; and what a pinned set says of text
that it was not chosen from."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from yanmo.chinese.text_runs import Runs
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
    curate: Run,
    lines: list[dict[str, Any]],
    write_jsonl: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    curate(write_jsonl("a.jsonl", [*lines, {**lines[0], "text": lines[0]["text"][::-1], "genre": "曲"}]))
    stderr = capsys.readouterr().err
    assert "test documents are few in 诗 (13), 词 (8), 文 (6), 赋 (2), 曲 (0)" in stderr
    assert "no confirmation split: the text is too small for three" in stderr
    assert "--without-confirmation" in stderr and "another --channel" in stderr


@pytest.fixture
def mixed(curate: Run, write_jsonl: Callable[..., Path]) -> Path:
    """A channel whose set was chosen from 诗 alone, and a text with 曲 and 说 as well."""
    curate(write_jsonl("old.jsonl", poems(300, 1)))
    new = [*poems(300, 1), *poems(200, 2, genre="qu"), *poems(120, 3, genre="shuo")]
    return write_jsonl("new.jsonl", new)


def test_a_genre_of_which_nothing_is_held_out_is_named_with_what_to_do(
    curate: Run, mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = curate(mixed)
    assert "of genre 曲, 说 nothing is held out" in (stderr := capsys.readouterr().err)
    assert "another --channel" in stderr
    assert {r["genre"] for r in texts_of(done.output("evaluation_set"), "test")} == {"诗"}


def test_a_channel_that_was_begun_with_other_text_says_so(
    curate: Run, write_jsonl: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    said = "channel 'dev' was begun with other text"
    old, new = poems(300, 1), poems(300, 2)
    curate(write_jsonl("old.jsonl", old))
    curate(write_jsonl("more.jsonl", [*old, *new]))
    assert said not in capsys.readouterr().err
    curate(write_jsonl("new.jsonl", new))
    assert said in capsys.readouterr().err


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
