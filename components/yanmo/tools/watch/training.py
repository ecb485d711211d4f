"""Finds the training that a person means and reads how it goes, from what it writes for itself.

    a training at work on this machine    job.json, metrics.jsonl, heartbeats/ of its work folder
    one at work elsewhere, in a bucket    metrics.jsonl of its last checkpoint that was uploaded
    one that has ended                    the record in its output

Nothing is asked of the training, and nothing is written.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.plain_json import json_value
from yanmo.formats.stage_cost import lines_in, training_lines
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import FileEntry
from yanmo.store.objects import ObjectStore, Wanted
from yanmo.store.output import SHORTEST_KEY, Output, find_output
from yanmo.store.pointers import open_named, pointer_name, read_pointer
from yanmo.store.runs.failure_card import FILE as FAILURE
from yanmo.store.runs.failure_card import Card, read_cards, survived
from yanmo.store.runs.in_use import LEASE, work_name
from yanmo.store.runs.lease import live_holder
from yanmo.tools.store.find import find

STAGE = "train"
METRICS, JOB, WORK, HEARTBEATS = "metrics.jsonl", "job.json", "WORK.json", "heartbeats"


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training as it is now."""

    key: str
    state: str
    """`at work`, `left` (nobody works on it; the same command goes on) or `done`."""
    holder: str = ""
    """The machine that works on it."""
    steps: int = 0
    """In all; 0 where nobody knows."""
    lines: list[dict[str, Any]] = field(default_factory=list)
    """Of metrics.jsonl."""
    silent_seconds: float | None = None
    """Since the last line was written; None where it is done, or the line came by a checkpoint."""
    heartbeats: Mapping[int, float] = field(default_factory=dict)
    """Rank -> seconds since it was last alive; empty where that cannot be seen from here."""
    failures: Sequence[Card] = ()
    """How tries of it failed, newest first."""
    note: str = ""
    """What a reader must know of where the lines come from."""

    @property
    def name(self) -> str:
        return f"{STAGE}/{self.key[:12]}"


@dataclass(frozen=True)
class _Work:
    """What lies below runs/train/<key>."""

    key: str
    lease_at: float = 0.0
    """When the lease was last renewed, by the store's clock; 0 for none."""
    saved_at: float = 0.0
    failed_at: float = 0.0
    newest: float = 0.0


class Watcher:
    """Looks at one training again and again; reads only what is new of a file that grows."""

    def __init__(self, store: ObjectStore, channel: str, what: str, *, is_named: bool = True) -> None:
        """Args:
        what: "" for the one at work, else the channel's last; or its key, a pointer, a reference.
        is_named: whether a person named the channel; else the store's only one with a training will do,
            where nothing is at work.
        """
        self._store, self._channel, self._what, self._is_named = store, channel, what, is_named
        self._files: dict[Path, _Growing] = {}

    def look(self) -> Training | None:
        """The training as it is now; None where there is none yet.

        Raises:
            UsageError, DataError: `what` names none.
        """
        found = self._look()
        if found:
            self._what = self._what or found.name  # the same one, also when another begins beside it
        return found

    def _look(self) -> Training | None:
        works = _works(self._store)
        if not self._what:
            at_work = (found for work in works if (found := self._at_work(work)))
            return next(at_work, None) or self._last(works)
        for work in works:
            if _is_key(work.key, self._what):
                if alive := self._at_work(work):
                    return alive
                output = find_output(self._store, STAGE, work.key)  # the lease ends after the commit
                return _done(output) if output else self._of_work(work, "left", "")
        return _done(find(self._store, self._what, STAGE, channel=self._channel, where="RUN"))

    def _last(self, works: Sequence[_Work]) -> Training | None:
        """The channel's last training, or one that has failed since: a person asks what became of it.

        Where no channel is named, that of the only channel that has one.
        """
        channel = self._channel
        pointer = read_pointer(self._store, channel, STAGE)
        if pointer is None and not self._is_named and not others_at_work(self._store):
            known = channels_with_one(self._store)
            channel = known[0] if len(known) == 1 else channel
            pointer = read_pointer(self._store, channel, STAGE)
        last = pointer and open_named(self._store, pointer, pointer_name(channel, STAGE))
        made_at = last.manifest.created_at if last else ""
        failed = max(works, key=lambda work: work.failed_at, default=None)
        if failed and any(made_at < card.made_at for card in self._cards(failed)):
            return self._of_work(failed, "left", "")
        return _done(last) if last else None

    def _cards(self, work: _Work) -> list[Card]:
        return read_cards(self._store, STAGE, work.key) if work.failed_at else []

    def _at_work(self, work: _Work) -> Training | None:
        """The training of that key, if somebody works on it and it is none of the sessions beside it."""
        store, name = self._store, f"{work_name(STAGE, work.key)}/{LEASE}"
        holder = _holder(store, name, store.clock() - work.lease_at) if work.lease_at else ""
        folder = _folder(store, work.key)
        if not holder or not (work.saved_at or (folder and (folder / JOB).is_file())):
            return None
        return self._of_work(work, "at work", holder)

    def _of_work(self, work: _Work, state: str, holder: str) -> Training:
        folder = _folder(self._store, work.key)
        cards = self._cards(work)
        if folder is None:
            return _saved(self._store, work, state, holder, cards)
        metrics = folder / METRICS
        lines = self._files.setdefault(metrics, _Growing(metrics)).read()
        silent = _age(metrics)
        return Training(
            key=work.key,
            state=state,
            holder=holder,
            steps=_steps(_text(folder / JOB)),
            lines=lines,
            failures=cards,
            silent_seconds=silent if state == "at work" else None,
            heartbeats=dict(_heartbeats(folder / HEARTBEATS)) if state == "at work" else {},
        )


class _Growing:
    """The lines of a metrics.jsonl that grows, or is written again where a training goes back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode, self._read = 0, 0
        self._lines: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        """All of its whole lines."""
        try:
            with self._path.open("rb") as file:
                stat = os.fstat(file.fileno())
                if stat.st_ino != self._inode or stat.st_size < self._read:
                    self._inode, self._read, self._lines = stat.st_ino, 0, []
                file.seek(self._read)
                data = file.read()
        except OSError:  # not written yet, or just committed and removed
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        self._lines += lines_in(whole.decode("utf-8", "replace"))
        return self._lines


def others_at_work(store: ObjectStore) -> list[str]:
    """Keys of other stages that are being made now, as a person calls them."""
    now, found = store.clock(), []
    for info in store.list("runs"):
        parts = info.name.split("/")
        is_lease = len(parts) == 4 and parts[3] == LEASE and parts[1] != STAGE
        if is_lease and _holder(store, info.name, now - info.modified):
            found.append(f"{parts[1]}/{parts[2][:12]}")
    return found


def channels_with_one(store: ObjectStore) -> list[str]:
    """Channels whose last training is known."""
    parts = [info.name.split("/") for info in store.list("pointers")]
    return sorted(one[1] for one in parts if len(one) == 3 and one[2] == f"{STAGE}.json")


def _is_key(key: str, what: str) -> bool:
    digits = what.removeprefix(f"{STAGE}/")
    return len(digits) >= SHORTEST_KEY and key.startswith(digits)


def _works(store: ObjectStore) -> list[_Work]:
    """Work on trainings, newest first."""
    found: dict[str, dict[str, float]] = {}
    for info in store.list(f"runs/{STAGE}"):
        parts = info.name.split("/")
        if len(parts) >= 4:
            files = found.setdefault(parts[2], {})
            name = parts[3] if len(parts) == 4 else ""
            files[name] = max(files.get(name, 0.0), info.modified)
    works = [
        _Work(key, f.get(LEASE, 0.0), f.get(WORK, 0.0), f.get(FAILURE, 0.0), max(f.values()))
        for key, f in found.items()
    ]
    return sorted(works, key=lambda work: work.newest, reverse=True)


def _saved(store: ObjectStore, work: _Work, state: str, holder: str, cards: Sequence[Card]) -> Training:
    """By the state that was last uploaded."""
    begin = work_name(STAGE, work.key)
    note, lines = "nothing is uploaded yet: it shows itself from its first checkpoint on", []
    if work.saved_at:
        entries = _saved_files(store, f"{begin}/{WORK}")
        metrics = sorted(entry.path for entry in entries if entry.path.endswith(f"/{METRICS}"))
        newest = next((entry for entry in entries if entry.path in metrics[-1:]), None)
        if newest:
            wanted = Wanted(f"{begin}/{newest.path}", newest.bytes, newest.sha256)
            paths = store.fetch([wanted])
            lines = lines_in(_text(paths[0]))
            store.release(paths)
            note = "as of its last checkpoint that was uploaded"
    return Training(key=work.key, state=state, holder=holder, lines=lines, failures=cards, note=note)


def _saved_files(store: ObjectStore, name: str) -> list[FileEntry]:
    data, _ = store.read(name)
    try:
        return [FileEntry(**file) for file in json_value(data)["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{store.uri}/{name}: damaged ({error}); the next run of it says what to do"
        ) from error


def _done(output: Output) -> Training:
    counts = output.manifest.counts
    steps = counts.get("steps")
    return Training(
        key=output.manifest.key,
        state="done",
        steps=steps if isinstance(steps, int) else 0,
        lines=training_lines(output),
        failures=survived(output),
    )


def _folder(store: ObjectStore, key: str) -> Path | None:
    """The work folder of a key on this machine, if the store is one."""
    return Path(store.root) / work_name(STAGE, key) if isinstance(store, FileStore) else None


def _holder(store: ObjectStore, name: str, age: float) -> str:
    """The machine that holds a lease; "" where nobody does."""
    try:
        return live_holder(name, store.read(name)[0], age)
    except (FileNotFoundError, DataError):
        return ""


def _age(path: Path) -> float | None:
    """Seconds since the file was written; None where there is none."""
    try:
        return max(time.time() - path.stat().st_mtime, 0.0)
    except OSError:  # not written yet, or just committed and removed
        return None


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:  # not written yet, or just committed and removed
        return ""


def _steps(job: str) -> int:
    try:
        found = json.loads(job)["options"]["steps"]
        return int(found) if isinstance(found, int) else 0
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0


def _heartbeats(folder: Path) -> Iterator[tuple[int, float]]:
    """Rank -> seconds since it was alive: it touches rank-00000 once a second (train/health/watchdog.py)."""
    now = time.time()
    try:
        for path in sorted(folder.glob("rank-*")):
            if path.name.removeprefix("rank-").isdigit():
                yield int(path.name.removeprefix("rank-")), max(now - path.stat().st_mtime, 0.0)
    except OSError:  # it is over this moment
        return
