"""The trainings that a channel has begun and not judged: its next run finishes the first of them first.

    <store>/runs/train/unfinished/<channel>.json

`train` writes it when the work on a key begins, with all that the key was made from; `promote` takes the key
out once its model was judged. So a run that was paused or killed, in whatever stage, leaves word of what it
was at, and nobody has to list the store for it. Every change is a compare-and-swap. gc keeps what a training
rests on that may be finished.

A run that begins or goes on with a training is noted as a try, with the newest checkpoint that it found. Some
tries in a row that all found the same one have made no progress: the training is then given up. It stays in
the record among those that were set aside, so that a person can resume it; gc keeps what it rests on for as
long as it keeps checkpoints that nobody goes on from.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from yanmo.common.errors import DataError
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import KEY
from yanmo.store.record import Record, utc_now

OPEN, TRAINED = "open", "trained"
GIVEN_UP, LEFT, OUTDATED = "given up", "left", "outdated"
_STATES = (OPEN, TRAINED, GIVEN_UP, LEFT, OUTDATED)
_NAME = re.compile(r"runs/train/unfinished/[^/]+\.json\Z")
_KEPT_TRIES, _KEPT_ASIDE = 30, 20
MOST_STALLED = 3
"""Runs of a pipeline in a row without a newer checkpoint, after which a training is given up."""
Scalar = str | int | float | bool


class GivenUp(DataError):
    """A training that made no progress for too many runs."""


@dataclass(frozen=True, kw_only=True)
class Try:
    """One run that began a training, or went on with it."""

    run_id: str
    at: str
    checkpoint: str
    """Label of the newest checkpoint that it found, "" for none; labels sort by age."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training, and all that its key was made from."""

    key: str
    revision: int
    options: dict[str, Scalar]
    """The semantic ones, resolved."""
    execution: dict[str, Scalar]
    inputs: dict[str, Reference | None]
    run_id: str
    """The run that began it."""
    begun_at: str = field(default_factory=utc_now)
    checkpoint: str = ""
    """The newest one that is known of."""
    tries: tuple[Try, ...] = ()
    state: str = OPEN
    """trained: its model is committed, and not judged yet. Else open, or why it was set aside."""
    why: str = ""
    """Why it was set aside, in words."""
    by_next: bool = False
    """Whether a person has given it to the channel's next run, whatever that asks for."""

    def __post_init__(self) -> None:
        if not KEY.fullmatch(self.key) or self.state not in _STATES:
            raise ValueError(f"key {self.key[:70]!r} or state {self.state[:20]!r} cannot be")
        if not re.fullmatch(r"|[^\s]*-[0-9]{1,18}", self.checkpoint):
            raise ValueError(f"checkpoint {self.checkpoint[:40]!r} cannot be")
        for when in (self.begun_at, *(one.at for one in self.tries)):
            datetime.fromisoformat(when)

    @property
    def is_open(self) -> bool:
        """Return whether the channel's next run finishes it."""
        return self.state in (OPEN, TRAINED)

    @property
    def step(self) -> int:
        """The step of its newest known checkpoint."""
        return int(self.checkpoint.rpartition("-")[2] or 0)

    def stalled(self, checkpoint: str, but: str = "") -> int:
        """Return how many of its last tries found a checkpoint that was no older than this.

        Args:
            but: a run that does not count, as it has not ended.
        """
        ended = [one for one in self.tries if one.run_id != but]
        return sum(1 for _ in itertools.takewhile(lambda one: one.checkpoint >= checkpoint, reversed(ended)))

    @property
    def is_stalled(self) -> bool:
        """Return whether the channel gives it up."""
        return self.stalled(self.checkpoint) >= MOST_STALLED

    def tried(self, run_id: str, checkpoint: str) -> Training:
        """With the run as its last try, and what that found."""
        last = self.tries[-1].run_id if self.tries else None
        more = [Try(run_id=run_id, at=utc_now(), checkpoint=checkpoint)] if last != run_id else []
        tries = tuple([*self.tries, *more][-_KEPT_TRIES:])
        return dataclasses.replace(self, tries=tries, checkpoint=checkpoint)

    @property
    def tried_at(self) -> float:
        """Return when a run last began it or went on with it, Unix time."""
        return datetime.fromisoformat(self.tries[-1].at if self.tries else self.begun_at).timestamp()

    def aside(self, state: str, why: str) -> Training:
        """Set aside; it is not finished by itself any more."""
        return dataclasses.replace(self, state=state, why=why)

    def resumed(self) -> Training:
        """To be finished by the channel's next run; its tries are forgotten where it was set aside."""
        if self.state == OPEN:
            return dataclasses.replace(self, by_next=True)
        state = TRAINED if self.state == TRAINED else OPEN
        return dataclasses.replace(self, state=state, why="", tries=(), by_next=True)

    @property
    def name(self) -> str:
        """As options take it, and as it is shown."""
        return f"train/{self.key[:12]}"

    def __str__(self) -> str:
        at = f"step {self.step}" if self.checkpoint else "no checkpoint yet"
        if self.state == TRAINED:
            at = "trained, not judged"
        return f"{self.name} ({at}; begun {self.begun_at} by run {self.run_id})"


@dataclass(frozen=True)
class Unfinished:
    """What the record of a channel says."""

    trainings: tuple[Training, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{one.name}, {one.state}" for one in self.trainings) or "none"

    @property
    def open(self) -> list[Training]:
        """Those to finish, the first one first."""
        return [one for one in self.trainings if one.is_open]

    @property
    def set_aside(self) -> list[Training]:
        """Those that a person may resume, the newest last."""
        return [one for one in self.trainings if not one.is_open]

    def of(self, key: str) -> Training | None:
        """Return the training of this key."""
        return next((one for one in self.trainings if one.key == key), None)

    def named(self, name: str) -> Training | None:
        """Return the training `train/KEY`, of whose key the first digits are enough; None for no one."""
        found = [one for one in self.trainings if f"train/{one.key}".startswith(name)]
        return found[0] if len(found) == 1 else None

    def with_(self, training: Training, *, first: bool = False) -> Unfinished:
        """With this training in its place, else as the last, or as the first."""
        if self.of(training.key) is not None and not first:
            return Unfinished(tuple(training if t.key == training.key else t for t in self.trainings))
        others = self.without(training.key).trainings
        return Unfinished((training, *others) if first else (*others, training))

    def without(self, key: str) -> Unfinished:
        """Without the training of this key."""
        return Unfinished(tuple(one for one in self.trainings if one.key != key))


UNFINISHED = Record(
    "yanmo.unfinished/1",
    Unfinished,
    "restore it, or delete it: what was begun and not finished then begins again only if a run has the same "
    "data and options",
)


def unfinished_name(channel: str) -> str:
    """Return the name of the record of a channel."""
    return f"runs/train/unfinished/{channel}.json"


def is_unfinished_record(name: str) -> bool:
    """Return whether an object of the store is such a record, by its name."""
    return _NAME.match(name) is not None


def read_unfinished(store: ObjectStore, channel: str) -> Unfinished:
    """Return the record of a channel; an empty one where there is none.

    Raises:
        DataError: it is damaged.
    """
    return UNFINISHED.read(store, unfinished_name(channel)) or Unfinished()


def change_unfinished(
    store: ObjectStore, channel: str, change: Callable[[Unfinished], Unfinished]
) -> Unfinished:
    """Write the record that `change` makes of it, and return that; none is made for nothing.

    Args:
        change: may be called again, where another run changed the record meanwhile.

    Raises:
        StorageError: it changed under every try.
        DataError: it is damaged.
    """

    def changed(record: Unfinished | None) -> Unfinished | None:
        result = _bounded(change(record or Unfinished()))
        return None if record is None and not result.trainings else result

    return UNFINISHED.change(store, unfinished_name(channel), changed) or Unfinished()


def _bounded(record: Unfinished) -> Unfinished:
    """Without the oldest of many that were set aside."""
    gone = {one.key for one in record.set_aside[:-_KEPT_ASIDE]}
    return Unfinished(tuple(one for one in record.trainings if one.key not in gone))


def to_be_kept(record: Unfinished, is_abandoned: Callable[[float], bool]) -> list[Training]:
    """Return the trainings of a record that may be finished.

    That is those that the next run finishes, and those that a person may resume. Not what was set aside for
    its texts or options.

    Args:
        is_abandoned: whether work that was last tried then (Unix time) is no longer kept.
    """
    return [
        one
        for one in record.trainings
        if one.is_open or (one.state in (GIVEN_UP, LEFT) and not is_abandoned(one.tried_at))
    ]


def resumed_by(training: Training) -> str:
    """Return the field of a run's form that finishes a training which was set aside."""
    return f"train_unfinished={training.name}"
