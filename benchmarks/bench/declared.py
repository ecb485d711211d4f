"""What a benchmark is, and which there are."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

Words = tuple[str, str]
"""The same in English and in Chinese."""
OURS = "yanmo"
"""Contestants whose name begins so are ours; the first one is what others are compared with."""
NAMES = ("tokens", "curation", "training", "evaluation", "generation")


@dataclass(frozen=True)
class Place:
    """Where a benchmark finds what it needs."""

    store: str
    """URI of a store in which `make demo` ran; "" if the benchmark needs none."""
    channel: str
    peer: str
    """The Python of the peer's own environment; "" where the peer is imported beside Yanmo."""
    folder: Path
    """Empty, removed afterwards."""


@dataclass(frozen=True)
class Group:
    """Contestants that do the same work."""

    title: Words
    contestants: dict[str, Callable[[], float]]
    """Name -> does the work once and returns the figure of this round."""


Opened = AbstractContextManager[list[Group]]


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: `BENCHMARK` of a file `of_*.py`."""

    name: str
    title: Words
    unit: Words
    about: Words
    """What is done in a round, and what is not the same in both."""
    open: Callable[[Place], Opened]
    in_chinese: Mapping[str, str] = field(default_factory=dict)
    """Contestants whose name is another one in Chinese."""
    packages: tuple[str, ...] = ()
    """Of the others, with their versions."""
    is_apart: bool = False
    """Whether they are installed without ours: their pins contradict each other."""
    needs_store: bool = False
    more_is_better: bool = True
    rounds: int = 7
    minutes: int = 5
    """About how long it takes on two free cores, without installing the peer."""


def benchmark(name: str) -> Benchmark:
    """The benchmark of that name."""
    found: Benchmark = importlib.import_module(f"bench.of_{name}").BENCHMARK
    return found
