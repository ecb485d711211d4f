"""An evaluation's work in pieces, each written down as it is made: what a kill spares.

A piece is a JSON object below the run's key in the store (runs/evaluate/<key>/pieces/), whole or not there.
It names the plan it was made by and the digest of its value; one that is damaged, or of another plan, is made
again. So a run that was killed goes on where it was, on any machine that sees the store.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from yanmo.common.plain_json import json_value
from yanmo.common.words import plural
from yanmo.store.objects import AlreadyExists, ObjectStore

log = logging.getLogger(__name__)


class PieceTask(NamedTuple):
    """How a piece is made."""

    plan: str
    """What its value depends on in addition to the run's key; pieces of another plan are not taken."""
    make: Callable[[], Any]
    """Gives a value of JSON; called in any order, in any thread."""


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

    def __init__(self, store: ObjectStore, work_name: str, *, again: bool = False) -> None:
        """Use what an earlier run of this key left.

        Args:
            work_name: name of the run's work (commit.work_name).
            again: make all pieces again, whatever is there.
        """
        self._store, self._folder, self._again = store, f"{work_name}/pieces", again
        self._names: list[str] = []

    def all(self, name: str, jobs: Sequence[PieceTask], at_once: int = 1) -> list[Any]:
        """The values of the pieces, those that are there and those that are made now."""
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
            made = job.make()
            self._write(path, _body(job.plan, made))
            return made

        values = _mapped(value, range(len(jobs)), at_once)
        if found:
            log.info(
                "%s: %d of %s were made before, taken as they are", name, found, plural(len(jobs), "piece")
            )
        return values

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
        except AlreadyExists:  # a damaged one, or one of another plan
            self._store.delete(name)
            self._store.create(name, body)


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
