"""What a pinned set says of text that it was not chosen from."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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


def test_a_genre_of_which_nothing_is_held_out_is_named_with_what_to_do(
    curate: Run, mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = curate(mixed)
    assert "of genre 曲, 说 nothing is held out" in (stderr := capsys.readouterr().err)
    assert "another --channel" in stderr
    assert {r["genre"] for r in rows(done.output("evaluation_set"), "test")} == {"诗"}


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
