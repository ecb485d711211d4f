"""Genres that are new to a channel get held-out texts; what was held out before stays as it was."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from yanmo.chinese.text_runs import Runs
from yanmo.store.manifest import file_sha256

HAN = "春眠不觉晓处闻啼鸟夜来风雨声花落知多少白日依山尽黄河入海流欲穷千里目更上一层楼床前明月光疑是地霜"
Run = Callable[..., Any]
Record = dict[str, Any]
Write = Callable[..., Path]


def poems(number: int, genre: str, seed: int) -> list[Record]:
    draw = random.Random(seed)
    texts = ("\n".join("".join(draw.choices(HAN, k=7)) + "。" for _ in range(8)) for _ in range(number))
    return [{"text": text, "genre": genre, "source": genre} for text in texts]


def rows(output: Any, split: str) -> list[Record]:
    return list(pa.concat_tables([pq.read_table(p) for p in output.paths(f"{split}-*.parquet")]).to_pylist())


@pytest.fixture
def mixed(curate: Run, write_jsonl: Write) -> Path:
    """A channel whose set was chosen from 诗 alone, and a text with 曲 and 说 as well."""
    curate(write_jsonl("old.jsonl", poems(300, "shi", 1)))
    new = [*poems(300, "shi", 1), *poems(200, "qu", 2), *poems(120, "shuo", 3)]
    return write_jsonl("new.jsonl", new)


def test_a_genre_of_which_nothing_is_held_out_is_named_with_the_command_that_adds_it(
    curate: Run, mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = curate(mixed)
    assert "of genre 曲, 说 nothing is held out" in (stderr := capsys.readouterr().err)
    assert "--add-genres" in stderr
    assert {r["genre"] for r in rows(done.output("evaluation_set"), "test")} == {"诗"}


def test_added_genres_have_texts_in_every_split_and_the_old_files_are_the_same(
    curate: Run, mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = curate(mixed).output("evaluation_set")
    digests = {p.name: file_sha256(p) for p in before.paths("*.parquet")}
    capsys.readouterr()
    curate(mixed, "--add-genres")
    assert "already" not in capsys.readouterr().err
    done = curate(mixed)
    assert "nothing is held out" not in capsys.readouterr().err
    after = done.output("evaluation_set")
    now = {p.name: file_sha256(p) for p in after.paths("*.parquet")}
    assert digests.items() < now.items()
    counts = after.manifest.counts["documents"]
    assert set(counts) == {"test", "valid", "confirm"} and after.manifest.metadata["genres"] == [
        "诗",
        "曲",
        "说",
    ]
    held = []
    for split in counts:
        found = rows(after, split)
        assert {genre: sum(r["genre"] == genre for r in found) for genre in counts[split]} == counts[split]
        assert counts[split].keys() == {"诗", "曲", "说"} and all(r["split"] == split for r in found)
        assert min(counts[split].values()) >= 10
        held += found
    assert len({r["id"] for r in held}) == len(held)
    train = [r["text"] for r in done.rows("train")]
    assert train and not Runs.of([r["text"] for r in held], 13).found_in(train).any()
    assert {r["genre"] for r in done.rows("valid")} == {"诗", "曲", "说"}


def test_a_set_is_added_to_again_and_again(curate: Run, mixed: Path, write_jsonl: Write) -> None:
    curate(mixed, "--add-genres")
    more = write_jsonl("more.jsonl", [*poems(300, "shi", 1), *poems(100, "ci", 5)])
    curate(more, "--add-genres")
    after = curate(more).output("evaluation_set")
    assert set(after.manifest.counts["documents"]["test"]) == {"诗", "曲", "说", "词"}
    assert len({p.name.partition("-of-")[0] for p in after.paths("test-*.parquet")}) == 3


def test_nothing_new_moves_nothing(curate: Run, mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curate(mixed, "--add-genres")
    before = curate(mixed).output("evaluation_set").reference
    capsys.readouterr()
    curate(mixed, "--add-genres")
    assert "already has texts of every genre" in capsys.readouterr().err
    assert curate(mixed).output("evaluation_set").reference == before


def test_a_new_genre_of_too_few_texts_is_refused_by_name(
    curate: Run, mixed: Path, write_jsonl: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    before = curate(mixed).output("evaluation_set").reference
    few = write_jsonl("few.jsonl", [*poems(300, "shi", 1), *poems(4, "fu", 6)])
    curate(few, "--add-genres", expect=65)
    assert "too few texts of genre 赋 for the test split" in capsys.readouterr().err
    assert curate(mixed).output("evaluation_set").reference == before


@pytest.mark.parametrize("more", [("--add-confirmation",), ("--evaluation-set", "none"), ("--shard", "1/2")])
def test_options_that_contradict_it_are_refused(curate: Run, mixed: Path, more: tuple[str, ...]) -> None:
    curate(mixed, "--add-genres", *more, expect=64)


def test_a_channel_that_was_begun_with_other_text_says_so(
    curate: Run, write_jsonl: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "channel 'dev' was begun with other text"
    old, new = poems(300, "shi", 1), poems(300, "shi", 2)
    curate(write_jsonl("old.jsonl", old))
    curate(write_jsonl("more.jsonl", [*old, *new]))
    assert said not in capsys.readouterr().err
    curate(write_jsonl("new.jsonl", new))
    assert said in capsys.readouterr().err
