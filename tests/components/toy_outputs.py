"""Small real outputs for the tests of this folder."""

from __future__ import annotations

import time
from collections.abc import Callable

from yanmo.store.commit import Attempt, Recipe, Result
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer

WAIT_SECONDS = 120
"""Longest wait of a test for what will come on a busy machine too."""


def recipe(stage: str = "toy", **semantic: object) -> Recipe:
    return Recipe(stage=stage, revision=1, semantic=semantic, inputs={})


def write_text(text: str) -> Callable[[Attempt], Result]:
    def build(attempt: Attempt) -> Result:
        attempt.write("text.txt", text)
        attempt.write("log.txt", "a record", role="record")
        return Result(counts={"characters": len(text)})

    return build


def latest(store: FileStore, name: str = "toy", channel: str = "dev") -> Output:
    """What the channel's pointer names."""
    pointer = read_pointer(store, channel, name)
    assert pointer is not None
    return open_reference(store, pointer)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited {WAIT_SECONDS} s in vain: {what}"
        time.sleep(0.02)
