"""What happens in each night: data and a fault, as a pure function of the seed.

Nights come in blocks of ten. In each block every fault of FAULTS comes once, two nights are quiet, and the
data grow in eight nights, in three of them with a poisoned file among the new ones; they shrink in one and
stay as they were in one. So ten nights have met everything, and a plan of thirty begins with the plan of ten.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

BLOCK = 10
QUIET = "quiet"
FAULTS = ("pod", "pod", "store", "store", "clock", "clock", "disk", "disk", QUIET, QUIET)
"""`pod`: the run is killed."""
GROW, SHRINK, SAME, COPY, MOJIBAKE, EMPTY = "grow", "shrink", "same", "copy", "mojibake", "empty"
EVENTS = (GROW, GROW, GROW, GROW, GROW, SHRINK, SAME, COPY, MOJIBAKE, EMPTY)
POISONS = (COPY, MOJIBAKE, EMPTY)
"""A copy of the evaluation set, texts in another encoding, nothing."""
STAGES = ("curate", "tokenize", "train", "train", "evaluate")
"""Where a fault comes; training is what is worth most."""
CLOCKS = (-93_600, -660, 660, 93_600)
"""Seconds that a clock is off: 26 hours, and 11 minutes, which is within what S3 allows."""
_FIRST, _LEAST, _MOST = 3, 60, 140


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A file of the channel's data."""

    name: str
    kind: str
    """GROW (real text) or one of POISONS."""
    begin: int = 0
    """First text of the pool that it holds."""
    count: int = 0


@dataclass(frozen=True)
class Night:
    """What is planned for one night."""

    number: int
    """From 1 on."""
    data: str
    """One of EVENTS."""
    fault: str
    stage: str
    """During which the fault comes."""
    wait: float
    """Seconds from the stage's first work to the fault."""
    clock: int
    """Seconds that the clock is off, where that is the fault."""
    shards: tuple[Shard, ...]
    """All files that the channel has in this night, by name."""

    @property
    def name(self) -> str:
        """For the plan of all cases."""
        return f"{self.number}: {self.data}, {self.fault}" + (
            f" in {self.stage}" if self.fault != QUIET else ""
        )


def nights(seed: int, count: int) -> list[Night]:
    """The first `count` nights of a seed."""
    draw = random.Random(f"nights/{seed}")
    planned: list[Night] = []
    shards: dict[str, Shard] = {}
    begin = 0
    while len(planned) < count:
        for data, fault in _block(draw, first=not planned):
            number = len(planned) + 1
            stage, wait, clock = draw.choice(STAGES), round(draw.uniform(0, 2), 2), draw.choice(CLOCKS)
            begin = _change(draw, shards, number, data, begin)
            files = tuple(sorted(shards.values(), key=lambda shard: shard.name))
            at = {
                "number": number,
                "data": data,
                "fault": fault,
                "stage": stage,
                "wait": wait,
                "clock": clock,
            }
            planned.append(Night(**at, shards=files))  # type: ignore[arg-type]
    return planned[:count]


def _block(draw: random.Random, *, first: bool) -> list[tuple[str, str]]:
    """Data and fault of ten nights.

    The very first night grows from nothing, and is quiet. A night without new data is quiet too: nothing is
    made in which a fault could come.
    """
    faults, events = list(FAULTS), list(EVENTS)
    draw.shuffle(faults)
    draw.shuffle(events)
    if first:
        events.insert(0, events.pop(events.index(GROW)))
        faults.insert(0, faults.pop(faults.index(QUIET)))
    same = events.index(SAME)
    if faults[same] != QUIET:
        quiet = max(place for place, fault in enumerate(faults) if fault == QUIET)
        faults[quiet], faults[same] = faults[same], QUIET
    return list(zip(events, faults, strict=True))


def _change(draw: random.Random, shards: dict[str, Shard], number: int, data: str, begin: int) -> int:
    """Change the files as the night's data say; returns the first text that no file has had.

    A poisoned file never comes alone, so that there is new text in its night. It is taken away
    in the next night that changes anything.
    """
    if data == SAME:
        return begin
    for name in [name for name, shard in shards.items() if shard.kind in POISONS]:
        del shards[name]
    if data == SHRINK:
        del shards[draw.choice(sorted(shards)[1:])]
        return begin
    for part in range(_FIRST if number == 1 else 1):
        count = draw.randint(_LEAST, _MOST) * (2 if number == 1 else 1)
        name = f"part-{number:03d}-{part}.jsonl"
        shards[name] = Shard(name=name, kind=GROW, begin=begin, count=count)
        begin += count
    if data in POISONS:
        count = draw.randint(_LEAST, _MOST) if data == MOJIBAKE else 0
        name = f"{data}-{number:03d}.jsonl"
        shards[name] = Shard(name=name, kind=data, begin=begin, count=count)
        begin += count
    return begin
