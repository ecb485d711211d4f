"""Which faults, at which node and step: a pure function of the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

CUT_SECONDS, SLOW_SECONDS, FULL_SECONDS = 60.0, 30.0, 20.0
"""How long a node is cut off or slow, and the disk is full."""
CLOCK_SECONDS = 600
KINDS = (
    "kill", "kill node 0", "kill a rank", "kill in a checkpoint", "kill node 0 in a checkpoint",
    "stop in a checkpoint", "cut off", "slow network", "slow processor", "disk full", "clock",
    "stand still", "power off",
)  # fmt: skip
_FIRST, _LAST = 6, 24
"""Steps between which a fault comes."""


@dataclass(frozen=True)
class Case:
    """One training, and what happens to it."""

    number: int
    kind: str
    layout: tuple[int, int]
    """Nodes, and ranks on each."""
    node: int
    """To which it happens."""
    step: int
    """After which it happens, at the earliest."""
    offset: int = 0
    """Of the node's clock, seconds."""


def cases(seed: int, count: int, kinds: tuple[str, ...] = KINDS) -> list[Case]:
    """The plan: each kind in turn, in an order, at places and steps that the seed decides."""
    chosen = random.Random(f"nodes {seed}")
    found, deck = list[Case](), list[str]()
    for number in range(1, count + 1):
        if not deck:
            deck = list(kinds)
            chosen.shuffle(deck)
        kind = deck.pop()
        nodes = 4 if chosen.random() < 0.25 else 2
        node = 0 if "node 0" in kind else chosen.randrange(1 if kind.startswith("kill") else 0, nodes)
        step, offset = chosen.randint(_FIRST, _LAST), chosen.choice((-1, 1)) * CLOCK_SECONDS
        layout = (nodes, 1 if nodes == 4 else chosen.choice((1, 2)))
        found.append(Case(number, kind, layout, node, step, offset if kind == "clock" else 0))
    return found
