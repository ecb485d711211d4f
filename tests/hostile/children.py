"""Every process that a command starts, killed or stopped at a drawn moment of its life.

A child that is lost ends the command with 75, as the next run may have more luck, or it was not needed. One
that is stopped (as by a debugger or a frozen container) keeps the command waiting: that is right, but SIGTERM
ends them all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from hostile.cases import Case, Strike
from hostile.commands import COMMANDS
from hostile.ground import Ground
from hostile.rule import RETRY, Expected
from hostile.store_files import OTHER_KEY

ROLES = {
    "curate": ("fork server", "worker", "tracker"),
    "tokenize": ("fork server", "worker", "tracker"),
    "evaluate": ("fork server", "worker", "tracker", "other"),
    "train": ("rank", "other"),
}
"""Command -> the processes below it."""
SIGNALS = ("KILL", "SEGV", "TERM", "STOP", "STOP and CONT")
MOMENTS = 3
"""How often each process meets each signal."""
_MORE = {
    "curate": ("--workers=2", "--batch-bytes=2000"),
    "tokenize": ("--workers=2",),
    "evaluate": ("--workers=2",),
    "train": ("--ranks=2",),
}
_LATEST = {"fork server": 1.0, "worker": 0.3, "tracker": 1.0, "rank": 5.0, "other": 1.0}
"""Seconds after its start at which a process of that role is struck at the latest."""
_STOPPED_SECONDS = 12.0


def cases(seed: int, ground: Ground, whole: bool = False) -> Iterator[Case]:
    """Each process of each command with each signal, at drawn moments."""
    for name, roles in ROLES.items():
        for role in roles:
            for sent in SIGNALS:
                for number in range(MOMENTS):
                    draw = random.Random(f"{seed}/{name}/{role}/{sent}/{number}")
                    yield _case(name, role, sent, number, draw.uniform(0, _LATEST[role]))


def _case(name: str, role: str, sent: str, number: int, after: float) -> Case:
    command = COMMANDS[name]
    known = {flag.partition("=")[0] for flag in _MORE[name]}
    flags = [word for word in command.line(OTHER_KEY[name]) if word.partition("=")[0] not in known]
    stays = sent == "STOP"
    return Case(
        f"children/{name}/{role} {sent} {number}",
        (*flags, *_MORE[name]),
        Expected((0, RETRY), may_commit=command.commits, may_wait=stays),
        strike=Strike(role, sent, after),
        stop_after=_STOPPED_SECONDS if stays else 45.0,
    )
