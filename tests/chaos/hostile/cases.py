"""A situation: one command, and what is bad about where it runs or what it is given."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chaos.ground import Ground
from chaos.hostile import engine
from chaos.hostile.damages import INSTEAD
from chaos.hostile.engine import Ended
from chaos.hostile.rule import Expected, judge, shown
from chaos.hostile.store import Store
from chaos.place import S3Place
from chaos.plan import Case


@dataclass(frozen=True)
class Situation:
    """One command in one bad situation."""

    name: str
    """command/what."""
    argv: tuple[str, ...]
    """After `yanmo`; with @store, @in and @case for places of the store."""
    expected: Expected
    prepare: Callable[[Store], None] = lambda store: None
    """Brings the situation about."""
    powerless: bool = False
    """Whether the command must obey modes and owners, though it may run as root."""
    gone: bool = False
    """Whether the folder that it runs in is removed first."""
    stop_after: float = 0.0
    """Seconds after which it is asked to end, where it may rightly work for long; 0 is never."""
    check: Callable[[Store, Ended], list[str]] = lambda store, ended: []
    """What must be true besides the rule; gives findings."""

    @property
    def is_of_a_bucket(self) -> bool:
        """Whether it can be one of a store in a bucket."""
        return self.name.rpartition("/")[2] not in INSTEAD and any("@store" in word for word in self.argv)


def attempt(one: Situation, store: Store) -> tuple[str, list[str]]:
    """Bring a situation about, run its command, and judge; how it ended, and what is against the rule."""
    store.renew()
    one.prepare(store)
    store.publish()
    before = store.look()
    ended = engine.run(
        tuple(map(store.fill, one.argv)),
        store.cwd,
        store.environment,
        powerless=one.powerless,
        gone=one.gone,
        stop_after=one.stop_after,
    )
    findings = judge(ended, one.expected, before, store.look()) + one.check(store, ended)
    return shown(ended), findings


Family = Callable[[int, Store], Iterator[Situation]]
"""From a seed and a store: of drawn parts, those of the seed."""


def drawn(family: Family, ground: Ground, store: Store) -> list[Situation]:
    """300 situations of a family, or another number; those whose name begins as it was asked for.

    They are drawn by their names: a new option changes the draw by its own situations alone.
    """
    found = [one for one in family(ground.seed, store) if one.name.startswith(ground.case)]
    if store.place:
        found = [one for one in found if one.is_of_a_bucket]
    found.sort(key=lambda one: hashlib.sha256(f"{ground.seed}/{one.name}".encode()).digest())
    return found[: ground.times(60 if store.place else 300, 40)]


def part(name: str, family: Family) -> Callable[[Ground], Iterator[Case]]:
    """A family as a part of the plan; what says nothing of a bucket is tried in a folder alone."""

    def cases(ground: Ground) -> Iterator[Case]:
        if ground.server is None:
            store = Store(ground.folder / "hostile")
        elif name in ("options", "store"):
            place = S3Place.new(ground.server, ground.bucket, ground.folder)
            store = Store(ground.folder / "hostile", place=place)
        else:
            return
        for one in drawn(family, ground, store):
            yield Case(name, one.name, functools.partial(attempt, one, store))

    return cases
