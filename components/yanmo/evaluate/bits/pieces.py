"""An evaluation's work in pieces, each written down as it is made: what a kill spares, and what ranks share.

A piece is a JSON object below the run's key in the store (runs/evaluate/<key>/pieces/), whole or not there.
It names the plan it was made by and the digest of its value; one that is damaged, or of another plan, is made
again. So a run that was killed goes on where it was, on any machine that sees the store.

Of several ranks each first makes the pieces whose number is its own, then takes what is missing from the end
of the list. Nobody waits for anybody: a rank that is slow, comes late or dies costs no more than its share of
the work, and at most one piece of each rank is made twice. Who made a piece does not show in it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from yanmo.common.errors import UsageError
from yanmo.common.plain_json import json_value
from yanmo.common.words import plural
from yanmo.store.objects import AlreadyExists, Changed, ObjectStore

log = logging.getLogger(__name__)


class Committed(BaseException):
    """Raised in a rank that helps, once the output is committed.

    No `Exception`: the code of others that runs in between (the harness) must not catch it.
    """


class PieceTask(NamedTuple):
    """How a piece is made."""

    plan: str
    """What its value depends on in addition to the run's key; pieces of another plan are not taken."""
    make: Callable[[], Any]
    """Gives a value of JSON; called by any rank, in any order, in any thread."""


class Ranks(NamedTuple):
    """This process among those that share the work."""

    rank: int = 0
    world_size: int = 1

    @classmethod
    def of_environment(cls) -> Ranks:
        """RANK and WORLD_SIZE, as torchrun sets them.

        Raises:
            UsageError: they are no such numbers.
        """
        rank, size = (
            os.environ.get(name) or default for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"))
        )
        if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
            raise UsageError(
                f"RANK={rank}, WORLD_SIZE={size}: expected whole numbers, 0 <= RANK < WORLD_SIZE"
            )
        return cls(int(rank), int(size))

    def order(self, count: int) -> list[int]:
        """Numbers of pieces: this rank's own, then the others' from the last one."""
        own = range(self.rank, count, self.world_size)
        return [*own, *(i for i in reversed(range(count)) if i % self.world_size != self.rank)]


class Pieces:
    """Makes every piece and keeps none: for a caller without a store."""

    def all(self, name: str, jobs: Sequence[PieceTask], at_once: int = 1) -> list[Any]:
        """The values of the pieces `name`, in order.

        Args:
            name: letters, digits and hyphens; one name for each kind of work in a run.
            at_once: jobs done at a time, in threads.
        """
        return _mapped(lambda job: job.make(), jobs, at_once)


class KeptPieces(Pieces):
    """Pieces below a run's key in its store."""

    def __init__(
        self,
        store: ObjectStore,
        work_name: str,
        ranks: Ranks = Ranks(),  # noqa: B008 - immutable
        *,
        again: bool = False,
        is_committed: Callable[[], bool] = lambda: False,
    ) -> None:
        """Use what an earlier run of this key left.

        Args:
            work_name: name of the run's work (commit.work_name).
            again: make all pieces again, whatever is there.
            is_committed: asked before a piece is made; a rank that helps then stops.
        """
        self._store, self._folder, self._ranks = store, f"{work_name}/pieces", ranks
        self._again, self._is_committed = again, is_committed
        self._names: list[str] = []

    def all(self, name: str, jobs: Sequence[PieceTask], at_once: int = 1) -> list[Any]:
        """The values of the pieces, those that are there and those that this rank makes.

        Raises:
            Committed: the output is there, so that nobody needs them any more.
        """
        paths = [f"{self._folder}/{name}-{i:05d}.json" for i in range(len(jobs))]
        self._names += paths
        found = 0

        def value(number: int) -> Any:
            nonlocal found
            job, path = jobs[number], paths[number]
            kept = None if self._again else self._read(path, job.plan)
            if kept is not None:
                found += 1
                return kept[0]
            self._stop_if_committed()
            made = job.make()
            self._stop_if_committed()  # nobody would remove it
            self._write(path, _body(job.plan, made))
            return made

        order = self._ranks.order(len(jobs))
        values = dict(zip(order, _mapped(value, order, at_once), strict=True))
        if found:
            log.info(
                "%s: %d of %s were made before or by others, taken as they are",
                name,
                found,
                plural(len(jobs), "piece"),
            )
        return [values[i] for i in range(len(jobs))]

    def _stop_if_committed(self) -> None:
        if self._is_committed():
            raise Committed

    def kept(self, name: str) -> Any | None:
        """The value of the single piece `name`, if it is there."""
        path = f"{self._folder}/{name}.json"
        self._names.append(path)
        kept = None if self._again else self._read(path, "")
        return kept[0] if kept else None

    def keep(self, name: str, value: Any) -> None:
        """Write down the single piece `name`."""
        self._write(f"{self._folder}/{name}.json", _body("", value))

    def clear(self) -> None:
        """The output is committed: remove the pieces of this run."""
        for name in self._names:
            self._store.delete(name)

    def _read(self, name: str, plan: str) -> tuple[Any] | None:
        """The value of a piece, in a tuple; None where it is absent, damaged, or of another plan."""
        try:
            held = json_value(self._store.read(name)[0])
            if held["plan"] != plan or held["sha256"] != _digest(held["value"]):
                raise ValueError("it does not hold what it says, or belongs to another plan")
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s/%s: not used (%s); it is made again", self._store.uri, name, error)
            return None
        return (held["value"],)

    def _write(self, name: str, body: bytes) -> None:
        try:
            self._store.create(name, body)
        except AlreadyExists:  # another rank's, equal to ours; or a damaged one, or one of another plan
            try:
                before, version = self._store.read(name)
                if before != body:
                    self._store.replace(name, body, version)
            except (FileNotFoundError, Changed):
                log.debug("%s: written or removed by another rank meanwhile", name)


def _mapped(function: Callable[[Any], Any], items: Sequence[Any], at_once: int) -> list[Any]:
    if at_once <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(function, items))


def _body(plan: str, value: Any) -> bytes:
    return json.dumps({"plan": plan, "sha256": _digest(value), "value": value}).encode()


def _digest(value: Any) -> str:
    """The digest of a value; manifest.digest refuses the NaN of a model whose training diverged."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def plan_of(*parts: Any) -> str:
    """The digest of JSON values that describe how a piece is made."""
    return _digest(parts)
