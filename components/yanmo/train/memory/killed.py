"""A training whose container was killed for its memory goes on with half the micro batch at its next start.

On cgroup v2 the kubelet has all of a container killed that needs more memory than its limit (Kubernetes 1.28
and later, `singleProcessOOMKill: false`). This process is killed too, and nobody is left to say why. So it
notes in the store, beside its checkpoints, that it has begun and how full its memory became, and at any end
of its own that it has ended:

    <store>/runs/train/<key>/MEMORY.json

The next start finds it without an end. Where memory was nearly full, that was the reason. Where it was not,
the container was deleted, or its memory was full faster than could be noted: a second such death in a row,
each in the first step with this micro batch, counts as lack of memory too; once a step has ended, none does.
A container with a higher limit begins again with what was asked for.

The price: a look at the group's figures 20 times a second, and some three small writes a run. Alternative not
taken: asking Kubernetes how the last pod ended, as a stage has no rights there.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from yanmo.common.errors import EnvironmentFault
from yanmo.common.logs import human_bytes
from yanmo.common.words import plural
from yanmo.store.objects import ObjectStore, overwrite
from yanmo.store.schema import parse
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import TRAINING, doings
from yanmo.train.job import MICRO_BATCH
from yanmo.train.memory.cgroup import MemoryGroup
from yanmo.train.memory.micro_batch import halved, keep_largest, largest_micro_batch

log = logging.getLogger(__name__)
FILE, SCHEMA = "MEMORY.json", "yanmo.memory/1"
MOST_KILLS = 4
"""Halvings for lack of the container's memory, before the training ends with 78."""
_FULL = 0.9
"""Share of the limit from which memory counts as full."""
_PERIOD_SECONDS = 0.05
_MAX_BYTES = 65_536


@dataclass(frozen=True, kw_only=True)
class MemoryRecord:
    """What a start leaves for the next one."""

    limit_bytes: int = 0
    """Of the container."""
    high_bytes: int = 0
    """Most that was in use, as far as it was noted."""
    rows: int = 0
    """Micro batch of this start, rows of one rank."""
    doing: str = ""
    """What it was doing when that was noted."""
    fitted: bool = False
    """Whether a step with these rows was seen to end."""
    ended: bool = True
    """Whether it ended by itself: done, paused, stopped or failed, but not killed."""
    silent_deaths: int = 0
    """Starts in a row that were killed in their first step for no reason that was noted."""
    kills: int = 0
    """Starts that were killed for lack of memory."""
    most_rows: int = 0
    """Largest micro batch to try from now on; 0 for any."""
    schema: str = SCHEMA

    @property
    def was_full(self) -> bool:
        """Whether its memory was nearly used up."""
        return bool(self.limit_bytes) and self.high_bytes >= _FULL * self.limit_bytes

    def to_json(self) -> bytes:
        return json.dumps(dataclasses.asdict(self), indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> MemoryRecord:
        """Parse what `to_json` wrote.

        Raises:
            ValueError: it is damaged, or of a schema that this version does not know.
        """
        values = parse(data, SCHEMA, _MAX_BYTES)
        kinds = {field.name: type(field.default) for field in dataclasses.fields(cls)}
        if values.keys() != kinds.keys() or any(type(values[n]) is not kind for n, kind in kinds.items()):
            raise ValueError("it has not the fields that it should, or of another kind")
        return cls(**values)


class KillWatch:
    """Around a training: sees how the last start ended, and notes how this one does."""

    def __init__(
        self, store: ObjectStore, work_name: str, folder: Path, group: MemoryGroup | None = None
    ) -> None:
        """Args:
        work_name: where the key's work lies in the store; its lease is held.
        folder: where it lies on this machine.
        """
        self._store, self._name, self._folder = store, f"{work_name}/{FILE}", folder
        self._group = group or MemoryGroup()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._first: dict[int, str] = {}
        self._record = MemoryRecord()

    def begin(self, options: TrainConfig) -> KillWatch:
        """Halve the micro batch where the last start was killed for its memory, and watch this one.

        Raises:
            EnvironmentFault: it was killed so too often, or with a single row.
        """
        limit = self._group.limit()
        before = self._read()
        if before.limit_bytes and limit and limit > before.limit_bytes:
            log.info("the container has %s of memory now: all rows are tried again", human_bytes(limit))
            before = MemoryRecord()
            (self._folder / MICRO_BATCH).unlink(missing_ok=True)
        after = _seen(before, options)
        known, _ = largest_micro_batch(self._folder)
        if after.most_rows and (not known or after.most_rows < known):
            keep_largest(self._folder, after.most_rows, f"{_FULL_BEFORE} with a larger micro batch")
        rows = min(after.most_rows or options.micro_rows, options.micro_rows)
        is_proven = before.fitted and before.rows == rows
        self._record = dataclasses.replace(
            after, limit_bytes=limit, high_bytes=0, rows=rows, doing="", fitted=is_proven, ended=False
        )
        self._write()
        if limit:
            self._stop.clear()
            self._thread = threading.Thread(target=self._watch, daemon=True, name="memory")
            self._thread.start()
        return self

    def use(self, rows: int) -> None:
        """The workers start with so large a micro batch."""
        if rows != self._record.rows:
            self._note(rows=rows, fitted=False, doing="")
        self._first.clear()

    def keep_largest(self, rows: int) -> None:
        """Note for the pods after this one that no more rows than these are to be tried."""
        self._note(most_rows=rows)

    def kills(self) -> int:
        """How many processes of this container were killed so far for lack of memory."""
        return self._group.kills()

    def look(self) -> None:
        """Note that the first step has begun, and that it has ended; call it regularly."""
        if self._record.fitted:
            return
        for rank, doing in doings(self._folder).items():
            if not doing.startswith(TRAINING):
                continue
            if not self._record.doing:
                self._note(doing=doing)
            if self._first.setdefault(rank, doing) != doing:
                self._note(fitted=True, silent_deaths=0)
                return

    def __enter__(self) -> KillWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()
        self._note(ended=True, silent_deaths=0)

    def _watch(self) -> None:
        limit = self._record.limit_bytes
        while not self._stop.wait(_PERIOD_SECONDS):
            used = self._group.used()
            if used >= _FULL * limit:
                self._note(high_bytes=used, doing=next(iter(doings(self._folder).values()), ""))
                return

    def _note(self, **changes: object) -> None:
        with self._lock:
            self._record = dataclasses.replace(self._record, **changes)  # type: ignore[arg-type]
            self._write()

    def _write(self) -> None:
        try:
            overwrite(self._store, self._name, self._record.to_json())
        except (OSError, EnvironmentFault) as error:  # a training must not end for it
            log.warning("could not note the state of the memory in %s: %s", self._name, error)

    def _read(self) -> MemoryRecord:
        try:
            return MemoryRecord.from_json(self._store.read(self._name)[0])
        except FileNotFoundError:
            return MemoryRecord()
        except ValueError as error:
            log.warning("%s/%s: %s; going on without it", self._store.uri, self._name, error)
            return MemoryRecord()


_KILLED = "the container was killed for lack of memory"
_FULL_BEFORE = f"{_KILLED} before,"


def _seen(before: MemoryRecord, options: TrainConfig) -> MemoryRecord:
    """What follows from how the last start ended.

    Raises:
        EnvironmentFault: it was killed for lack of memory once too often, or with a single row.
    """
    if before.ended:
        return before
    in_first_step = bool(before.limit_bytes) and before.doing.startswith(TRAINING) and not before.fitted
    silent = before.silent_deaths + 1 if in_first_step else 0
    if not before.was_full and silent < 2:
        log.info("the last start was killed; its memory was not full: going on as it was")
        return dataclasses.replace(before, silent_deaths=silent)
    if options.micro_rows < before.rows:  # somebody gives fewer rows now
        return dataclasses.replace(before, silent_deaths=0)
    kills = before.kills + 1
    what = f"{_KILLED} ({human_bytes(before.limit_bytes)})" + (f" in {before.doing}" if before.doing else "")
    if before.rows <= 1 or kills > MOST_KILLS:
        times = f"{kills} times, at last " if kills > 1 else ""
        raise EnvironmentFault(
            f"{what}, {times}with a micro batch of {before.rows}; give the pod more memory, or take a "
            "smaller --context or model"
        )
    rows = halved(options, before.rows)
    log.warning("%s with a micro batch of %s; going on with %d", what, plural(before.rows, "row"), rows)
    return dataclasses.replace(before, kills=kills, most_rows=rows, silent_deaths=0)
