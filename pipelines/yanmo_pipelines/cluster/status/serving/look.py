"""One look at a store: what its pointers, records, leases and manifests say, read as little as can be.

A look lists `pointers/` and `runs/` and reads what has changed since the look before: in a store where
nothing happens, nothing but the two lists and the live leases. It lists no outputs (`cas/`).
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from yanmo.common.errors import DataError, StorageError, wrong_in
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Reference, unsealed
from yanmo.store.objects import MAX_DOCUMENT_BYTES, ObjectInfo, ObjectStore
from yanmo.store.output import open_reference, read_json
from yanmo.store.pointers import RECORD_SCHEMA, parse_pointer
from yanmo.store.runs.failure_card import FILE as FAILURE
from yanmo.store.runs.in_use import LEASE
from yanmo.store.runs.lease import held, live_holder
from yanmo.store.runs.run_record import is_run_record, parse_events, parse_run
from yanmo.store.schema import parse
from yanmo_pipelines.cluster.status.serving.metrics import OUTCOMES, PARTS, STAGES

log = logging.getLogger(__name__)
_POINTER = re.compile(r"pointers/([^/]+)/([^/]+)\.json\Z")
_HISTORY = re.compile(r"pointers/([^/]+)/history/(\d{6})\.json\Z")
_MOST_RECORDS = 100
"""Newest records of runs that are read of a channel."""
_SETTLED_SECONDS = 10.0
"""S3 counts in seconds when an object was written: what is younger may change and look the same."""
_WORK = "WORK.json"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Channel:
    """What is known of one channel; times are Unix seconds."""

    first: float
    """When its oldest file was written."""
    ended: tuple[tuple[str, float], ...]
    """Stages that ended well, and when."""
    paused: tuple[float, ...]
    champion_since: float | None
    changes: int
    """Of its champion."""
    bits: dict[str, float]
    """Of the champion, by genre; empty where that is not known."""
    mean_bits: float | None
    verdict: str
    """The newest one; "" for none."""
    verdicts: dict[str, int]


@dataclass(frozen=True)
class Working:
    """An output that is being made."""

    stage: str
    channel: str
    since: float | None


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one look saw."""

    at: float
    """By the store's clock."""
    channels: dict[str, Channel]
    working: tuple[Working, ...]
    left: dict[str, int]
    """Stage -> outputs that were saved and that nobody works on."""
    failed: dict[str, int]
    damaged: frozenset[str]


@dataclass
class _Run:
    outputs: dict[str, Reference] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    paused: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Bits:
    mean: float
    genres: dict[str, float]


@dataclass(frozen=True)
class _Champion:
    since: float
    verdict: Reference | None


class Watcher:
    """Looks at one store again and again."""

    def __init__(self, store: ObjectStore, channel: str = "") -> None:
        """
        Args:
            channel: the only one that is looked at; "" for all.
        """
        self._store, self._channel = store, channel
        self._read: dict[str, tuple[tuple[int, float], Any]] = {}
        self._opened: dict[tuple[str, Reference], Any] = {}
        self._damaged: set[str] = set()
        self._committed: set[tuple[str, str, frozenset[tuple[str, int, float]]]] = set()

    def look(self) -> Seen:
        """What the store says now.

        Raises:
            OSError, EnvironmentFault: it does not answer, or may not be read.
        """
        store = self._store
        if isinstance(store, FileStore) and not store.root.is_dir():
            raise StorageError(f"{store.uri}: there is no such folder")
        now = store.clock()
        self._damaged = set()
        listed = list(store.list(f"pointers/{self._channel}" if self._channel else "pointers"))
        by_channel: dict[str, list[ObjectInfo]] = defaultdict(list)
        for info in listed:
            by_channel[info.name.split("/")[1]].append(info)
        used: set[tuple[str, Reference]] = set()
        channels = {n: self._of_channel(n, infos, now, used) for n, infos in sorted(by_channel.items())}
        self._forget({info.name for info in listed}, "pointers/")
        self._opened = {which: value for which, value in self._opened.items() if which in used}
        working, left, failed = self._work(now)
        return Seen(
            at=now,
            channels=channels,
            working=working,
            left=left,
            failed=failed,
            damaged=frozenset(self._damaged),
        )

    def _forget(self, names: set[str], prefix: str) -> None:
        """Files below `prefix` that are there no more."""
        self._read = {n: said for n, said in self._read.items() if n in names or not n.startswith(prefix)}

    def _of_channel(
        self, name: str, infos: Iterable[ObjectInfo], now: float, used: set[tuple[str, Reference]]
    ) -> Channel:
        pointers: dict[str, ObjectInfo] = {}
        records: list[ObjectInfo] = []
        history: dict[int, ObjectInfo] = {}
        for info in infos:
            if found := _HISTORY.match(info.name):
                history[int(found[2])] = info
            elif is_run_record(info.name):
                records.append(info)
            elif found := _POINTER.match(info.name):
                pointers[found[2]] = info
        records.sort(key=lambda info: info.modified)
        runs = [
            run for info in records[-_MOST_RECORDS:] if (run := self._parsed(info, now, _run)) is not None
        ]
        ended = [(s, at) for run in runs for s, at in run.ended.items() if s in STAGES]
        ended += [(stage, pointers[stage].modified) for stage in STAGES if stage in pointers]
        champion = self._parsed(history[max(history)], now, _champion) if history else None
        bits = self._opened_from("champion_evaluation", pointers, now, used, _bits)
        judged = [
            outcome
            for run in runs
            if (named := run.outputs.get("promote"))
            and (outcome := self._open("promote", named, used, _outcome)) is not None
        ]
        times = [info.modified for info in (*pointers.values(), *records, *history.values())]
        return Channel(
            first=min(times, default=now),
            ended=tuple(ended),
            paused=tuple(at for run in runs for at in run.paused.values()),
            champion_since=champion.since if champion else None,
            changes=max(history, default=0),
            bits=bits.genres if bits else {},
            mean_bits=bits.mean if bits else None,
            verdict=self._opened_from("promote", pointers, now, used, _outcome) or "",
            verdicts={outcome: judged.count(outcome) for outcome in OUTCOMES},
        )

    def _opened_from(
        self,
        pointer: str,
        pointers: dict[str, ObjectInfo],
        now: float,
        used: set[tuple[str, Reference]],
        make: Callable[[ObjectStore, Reference], T],
    ) -> T | None:
        if pointer not in pointers:
            return None
        where = f"{self._store.uri}/{pointers[pointer].name}"
        named = self._parsed(pointers[pointer], now, lambda data, _: parse_pointer(data, pointer, where))
        return self._open(pointer, named, used, make) if named else None

    def _open(
        self,
        what: str,
        named: Reference,
        used: set[tuple[str, Reference]],
        make: Callable[[ObjectStore, Reference], T],
    ) -> T | None:
        """What an output says, which never changes: read once."""
        used.add((what, named))
        if (what, named) not in self._opened:
            try:
                self._opened[what, named] = make(self._store, named)
            except (DataError, ValueError, KeyError, TypeError, AttributeError) as error:
                self._is_damaged(f"{named.stage}/{named.key[:12]}", error)
                return None
        found: T = self._opened[what, named]
        return found

    def _parsed(self, info: ObjectInfo, now: float, make: Callable[[bytes, str], T]) -> T | None:
        """What a file says; read again when it has changed."""
        version = info.bytes, info.modified
        known = self._read.get(info.name)
        if known and known[0] == version:
            of_before: T = known[1]
            return of_before
        try:
            found = make(self._store.read(info.name)[0], f"{self._store.uri}/{info.name}")
        except FileNotFoundError:  # removed since it was listed
            return None
        except (DataError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._is_damaged(info.name, error)
            return None
        if now - info.modified > _SETTLED_SECONDS:
            self._read[info.name] = version, found
        return found

    def _is_damaged(self, name: str, error: Exception) -> None:
        log.debug("%s is left out: %s", name, wrong_in(error))
        self._damaged.add(name)

    def _work(self, now: float) -> tuple[tuple[Working, ...], dict[str, int], dict[str, int]]:
        """What is being made; and by stage, how many outputs were left, and how many of them failed."""
        files: dict[tuple[str, str], dict[str, ObjectInfo]] = defaultdict(dict)
        for info in self._store.list("runs"):
            parts = info.name.split("/")
            if len(parts) == 4 and parts[3] in (LEASE, _WORK, FAILURE):
                files[parts[1], parts[2]][parts[3]] = info
        self._forget({info.name for here in files.values() for info in here.values()}, "runs/")
        self._committed &= {(*of, _versions(here)) for of, here in files.items()}
        working: list[Working] = []
        left, failed = dict.fromkeys(STAGES, 0), dict.fromkeys(STAGES, 0)
        for (stage, key), here in files.items():
            lease = self._live_lease(here[LEASE], now) if LEASE in here else None
            if lease is not None:
                said = held(lease)
                working.append(Working(stage, said.channel, said.since))
            elif stage in left and here.keys() != {LEASE} and not self._is_committed(stage, key, here):
                left[stage] += 1
                failed[stage] += FAILURE in here and (
                    _WORK not in here or here[FAILURE].modified >= here[_WORK].modified
                )
        return tuple(working), left, failed

    def _live_lease(self, info: ObjectInfo, now: float) -> bytes | None:
        """The lease of a living run. Those of finished runs stay, and are read once."""
        data = self._parsed(info, now, lambda data, _: data)
        return data if data is not None and live_holder(info.name, data, now - info.modified) else None

    def _is_committed(self, stage: str, key: str, here: dict[str, ObjectInfo]) -> bool:
        """Whether the output is there: what was left of its work stays, and is asked about once."""
        name = stage, key, _versions(here)
        if name not in self._committed and self._store.stat(f"cas/{stage}/{key}/MANIFEST.json") is not None:
            self._committed.add(name)
        return name in self._committed


def _versions(here: dict[str, ObjectInfo]) -> frozenset[tuple[str, int, float]]:
    return frozenset((info.name, info.bytes, info.modified) for info in here.values())


def count(store: ObjectStore) -> dict[str, tuple[int, int]]:
    """Folder of the store -> objects and bytes in it. It lists the whole store: a request for 1,000 on S3."""
    found = {part: [0, 0] for part in PARTS}
    for info in store.list(""):
        part = info.name.partition("/")[0]
        into = found[part if part in found else "other"]
        into[0] += 1
        into[1] += info.bytes
    return {part: (objects, size) for part, (objects, size) in found.items()}


def _run(data: bytes, where: str) -> _Run:
    events = parse_events(data, where)
    return _Run(parse_run(data, where), events.ended, events.paused)


def _champion(data: bytes, where: str) -> _Champion:
    said = parse(unsealed(data), RECORD_SCHEMA, MAX_DOCUMENT_BYTES)
    verdict = Reference.from_dict(said["verdict"]) if said.get("verdict") else None
    return _Champion(datetime.fromisoformat(said["champion_since"]).timestamp(), verdict)


def _bits(store: ObjectStore, evaluation: Reference) -> _Bits:
    summary = read_json(open_reference(store, evaluation), "summary.json")
    genres = {name: float(said["bits_per_character"]) for name, said in summary["genres"].items()}
    return _Bits(float(summary["mean"]["bits_per_character"]), genres)


def _outcome(store: ObjectStore, verdict: Reference) -> str:
    return str(read_json(open_reference(store, verdict), "verdict.json")["outcome"])
