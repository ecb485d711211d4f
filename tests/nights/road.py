"""What every road of the nights has: where the store is, how a night runs on it, which faults it knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torture.place import Place
from torture.stages import start

from nights.plan import Night

CHANNEL = "nights"
STEPS = 20
FORM: dict[str, Any] = {
    "train_steps": str(STEPS),
    "train_seed": "1",
    "model_start": "champion",
    "model_vocabulary": 2048,
}
"""Fields of the run form, the same in every night: a night goes on from the champion."""
OF_TRAINING = (
    "train.layers=2 train.width=64 train.heads=1 train.head_width=64 train.feed_forward=128 "
    "train.batch_rows=16 train.ranks=1 train.warmup_steps=2 train.checkpoint_steps=4 train.log_every=5 "
    "train.valid_characters=2000"
)
OPTIONS = (
    f"{OF_TRAINING} curate.workers=1 tokenize.workers=1 tokenize.agreement_sentences=50 tokenize.judged=16 "
    "evaluate.workers=1 evaluate.budget_documents=20 evaluate.samples=2 evaluate.sample_tokens=16 "
    "evaluate.bootstrap_draws=200 evaluate.baseline_characters=20000 promote.draws=2000"
)
"""A model of 340,000 parameters. The smallest work that still is all of the work."""
LATE = "too late"
"""The fault came when its stage was over."""
TRIES = 3
"""Runs of a night: the first, and those that a schedule or a person would start after a red one."""


class NotHere(Exception):
    """This road cannot make the fault; says why."""


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """How one run of a night ended."""

    is_done: bool
    said: str = ""
    """The end of its log where it failed."""
    met: str = ""
    """LATE where the fault hit nothing."""


class Road(Protocol):
    """Where nights run."""

    name: str
    deck: Sequence[str]
    place: Place
    folder: Path
    """For logs and what is fetched."""

    def lay(self, files: dict[str, bytes]) -> str:
        """Make these the channel's data, and nothing else; returns `data_sources`."""

    def run(self, night: Night, sources: str, *, is_faulty: bool) -> RunEnd:
        """One run of the night's pipeline to its end, with the night's fault where it is the first.

        Raises:
            NotHere: the fault cannot be made here.
        """

    def running(self) -> list[str]:
        """Processes or pods of our runs that have not ended."""


def command(road: Road, *words: str) -> tuple[int, str]:
    """Exit code and output of `yanmo WORDS`, run here on the road's store."""
    done = start("yanmo.cli", (*words, "--store", road.place.uri), road.place, road.folder)
    return done.wait(), done.text
