"""Small real outputs for the tests of this folder."""

from __future__ import annotations

import time
from collections.abc import Callable

from yanmo.store.commit import Attempt, Recipe, Result

WAIT_SECONDS = 30


def recipe(stage: str = "toy", **semantic: object) -> Recipe:
    return Recipe(stage=stage, revision=1, semantic=semantic, inputs={})


def write_text(text: str) -> Callable[[Attempt], Result]:
    def build(attempt: Attempt) -> Result:
        attempt.write("text.txt", text)
        attempt.write("log.txt", "a record", role="record")
        return Result(counts={"characters": len(text)})

    return build


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited {WAIT_SECONDS} s in vain: {what}"
        time.sleep(0.02)
