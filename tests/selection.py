"""Which tests `make test` runs, and which of the others a commit draws.

Markers say what a test costs its owner. `make test` (pytest --quick) leaves those with a marker out, but
for a few of the cases of those that say `few=N`; `make test-all` runs everything. CI runs the rest in the
order that a draw gives, until its minutes are over (pytest --drawn MINUTES), so that a few landings cover
all. Files are drawn and not tests, for tests of a file share what they need. Nothing here measures: a list of
seconds would be older than the tests.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

COSTLY = {
    "fault": "kills at every point, damages, or stops something for good",
    "road": "goes the way from raw text to a model, or several nights of it",
    "process": "starts stages or commands as processes",
    "long": "computes or waits for more than about two seconds in this process",
}
"""Marker -> what such a test does. fault(few=3): `make test` runs three of its cases, chosen by the draw."""
_DRAW = "YANMO_DRAW"
Item = TypeVar("Item")


@functools.cache
def draw() -> str:
    """What the choice depends on: YANMO_DRAW, else the commit."""
    if os.environ.get(_DRAW):
        return os.environ[_DRAW]
    command = ["git", "-c", "safe.directory=*", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError:  # no git
        return "none"
    return done.stdout.strip() or "none"


def by_draw(items: Iterable[Item], of: str) -> list[Item]:
    """In the order that the draw gives them; `of` makes the order another one for every use."""
    return sorted(items, key=lambda item: hashlib.sha256(f"{draw()} {of} {item}".encode()).hexdigest())


def few(items: Sequence[Item], of: str, number: int = 3) -> list[Item]:
    """That many of them, chosen by the draw, in their order; all of them in `make test-all`."""
    if not _options["quick"]:
        return list(items)
    kept = set(by_draw(range(len(items)), of)[:number])
    return [item for place, item in enumerate(items) if place in kept]


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("yanmo")
    group.addoption("--quick", action="store_true", help="leave out costly tests, as `make test` does")
    group.addoption("--drawn", type=float, metavar="MINUTES", help="only what --quick leaves out, as long")


def configure(config: pytest.Config) -> None:
    """Also in a worker of xdist, which has the options of the process that started it."""
    for name, text in COSTLY.items():
        config.addinivalue_line("markers", f"{name}: {text}; make test leaves it out")
    os.environ[_DRAW] = draw()
    if (minutes := config.getoption("--drawn")) is not None and not hasattr(config.option, "until"):
        config.option.until = time.time() + 60 * minutes
    _options.update(quick=config.getoption("--quick"), until=getattr(config.option, "until", float("inf")))


_options: dict[str, Any] = {"quick": False, "until": float("inf")}


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave in `items` what the options ask for, in the order of the draw where that matters."""
    quick, drawn = config.getoption("--quick"), config.getoption("--drawn") is not None
    if not quick and not drawn:
        return
    left_out = _left_out(items)
    if quick:
        config.stash[_LEFT] = dict(Counter(kind for item in items if (kind := left_out.get(item))))
        items[:] = [item for item in items if item not in left_out]
        return
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item in left_out:
            files.setdefault(item.location[0], []).append(item)
    config.stash[_FILES] = {name: len(some) for name, some in files.items()}
    items[:] = [item for name in by_draw(files, "files") for item in files[name]]


def _left_out(items: Iterable[pytest.Item]) -> dict[pytest.Item, str]:
    """Item -> the marker for which `make test` does without it."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: dict[pytest.Item, str] = {}
    for name, some in cases.items():
        marked = [(item, mark) for item in some for mark in item.iter_markers() if mark.name in COSTLY]
        kept = max((int(mark.kwargs.get("few", 0)) for _, mark in marked), default=0)
        chosen = by_draw(dict.fromkeys(item.nodeid for item, _ in marked), name)[:kept]
        left.update({item: mark.name for item, mark in marked if item.nodeid not in chosen})
    return left


def is_over() -> bool:
    """Whether the minutes of --drawn are over: what has not begun is for another draw."""
    return time.time() > float(_options["until"])


_LEFT, _FILES = pytest.StashKey[dict[str, int]](), pytest.StashKey[dict[str, int]]()


def for_the_controller(config: pytest.Config) -> dict[str, dict[str, int]]:
    """What a worker of xdist tells the process that reports."""
    return {"left": config.stash.get(_LEFT, {}), "files": config.stash.get(_FILES, {})}


def from_a_worker(config: pytest.Config, told: dict[str, dict[str, int]]) -> None:
    config.stash[_LEFT], config.stash[_FILES] = told["left"], told["files"]


def summary(config: pytest.Config, ran: Iterable[str]) -> list[str]:
    """Lines for the end of a run; `ran` is the file of each test that ran."""
    if left := config.stash.get(_LEFT, {}):
        kinds = ", ".join(f"{left[kind]} {kind}" for kind in COSTLY if kind in left)
        return [f"left to make test-all: {sum(left.values())} tests ({kinds}); draw {draw()}"]
    if not (files := config.stash.get(_FILES, {})):
        return []
    counts = Counter(ran)
    lines = [
        f"draw {draw()}: {counts.total()} of {sum(files.values())} costly tests, "
        f"{sum(name in counts for name in files)} of {len(files)} files; again: make test DRAW={draw()}"
    ]
    for name in by_draw(files, "files"):
        if name in counts:
            lines.append(f"drawn: {name} ({counts[name]} of {files[name]})")
    return lines
