"""Pointers and references that a run moves and writes, and those that it refuses before its work."""

from __future__ import annotations

from collections.abc import Callable

from toy_outputs import latest

from yanmo.store.file_store import FileStore
from yanmo.store.pointers import read_pointer

Run = Callable[..., int]


def test_another_pointer_or_none_can_be_moved(store: FileStore, toy: Run) -> None:
    assert toy("--pointer=best_text") == 0
    assert read_pointer(store, "dev", "toy") is None
    assert latest(store, "best_text").path("text.txt")
    assert toy("--pointer=none", "--channel=quiet") == 0
    assert read_pointer(store, "quiet", "toy") is None and read_pointer(store, "quiet", "tokenizer") is None


def test_a_pointer_that_cannot_be_moved_is_refused_before_the_work_and_no_part_moves(
    store: FileStore, toy: Run
) -> None:
    assert toy("--text=春") == 0
    before = store.read("pointers/dev/tokenizer.json")[0]
    pointer = store.root / "pointers/dev/toy.json"
    pointer.unlink()
    pointer.mkdir()
    assert toy("--text=秋") == 65
    assert store.read("pointers/dev/tokenizer.json")[0] == before
    assert len(list((store.root / "cas/toy").iterdir())) == 1


def test_a_pointer_whose_parts_get_too_long_a_name_is_refused_before_the_work(
    store: FileStore, toy: Run
) -> None:
    assert toy(f"--pointer={'p' * 95}", "--end=bug") == 64
    assert toy(f"--pointer={'p' * 80}") == 0
