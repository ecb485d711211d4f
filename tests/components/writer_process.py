"""A process that commits one output, and stops (or dies) at the point its second argument names.

Run by tests: writer_process.py STORE POINT [TEXT]. At POINT it prints the word and waits for a line on
stdin, or for the kill.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from yanmo.store import file_store
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.opening import open_store

STORE, POINT = sys.argv[1:3]
TEXT = sys.argv[3] if len(sys.argv) > 3 else "春江潮水连海平"


def at(point: str) -> None:
    if point == POINT:
        print(point, flush=True)
        sys.stdin.readline()


def build(attempt: Attempt) -> Result:
    print(f"building {os.getpid()}", flush=True)
    attempt.path("half.txt").write_text(TEXT[:3], encoding="utf-8")
    at("half-written")
    attempt.path("half.txt").unlink()
    attempt.write("text.txt", TEXT)
    at("before-manifest")
    return Result(counts={"characters": len(TEXT)})


def around_create(store: Any, name: str, data: bytes, real: Any = file_store.FileStore.create) -> str:
    if name.endswith("/MANIFEST.json"):
        at("in-create")
        version = str(real(store, name, data))
        at("after-manifest")
        return version
    return str(real(store, name, data))


def around_link(source: Any, target: Any, real: Any = os.link) -> None:
    if Path(target).name == "MANIFEST.json":
        at("before-link")
        real(source, target)
        at("after-link")
        return
    real(source, target)


if __name__ == "__main__":
    file_store.FileStore.create = around_create  # type: ignore[method-assign]
    file_store.os.link = around_link  # type: ignore[attr-defined]
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(128 + signum))
    recipe = Recipe(stage="toy", revision=1, semantic={}, inputs={})
    made = commit_once(open_store(STORE), recipe, build, wait_seconds=0.05)
    assert made is not None
    print(f"done {made.path('text.txt').read_text(encoding='utf-8')}", flush=True)
