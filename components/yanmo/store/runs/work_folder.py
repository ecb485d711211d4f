"""Work in progress of one key: a folder on local disk and, in a far store, its last whole state.

    <store>/runs/<stage>/<key>/WORK.json     label, files with sizes and sha256; swapped in last
    <store>/runs/<stage>/<key>/<attempt>/... written once, each attempt below its own name

On `file://` the folder is the store's own and there is nothing to save. On `s3://` a run that goes on
elsewhere gets the state that WORK.json names: a kill before WORK.json is written leaves the state before.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from yanmo.store.file_store import FileStore
from yanmo.store.manifest import FileEntry, file_sha256
from yanmo.store.objects import ObjectStore, Wanted
from yanmo.store.record import Record
from yanmo.store.runs.lease import Lease

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class State:
    """What WORK.json names."""

    label: str = ""
    files: tuple[FileEntry, ...] = ()


STATE = Record("yanmo.work/1", State, "delete it to start again")


class WorkFolder:
    """The folder of one key's work."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self.store, self.name = store, name
        self.path = store.writable(name)
        self.is_in_store = isinstance(store, FileStore)
        """Whether what lies in the folder is in the store already."""
        self._lock = threading.Lock()

    def save(self, label: str, names: Sequence[str], lease: Lease) -> None:
        """Make these files the state that a run on another machine goes on from.

        Args:
            label: names of states sort by age; a state older than the saved one changes nothing.
            names: files of the folder, which must not change any more.
            lease: of this run; its attempt keeps the files of two runs apart.

        Raises:
            LeaseLost: another run has the key now, and its state stays.
            StorageError: not now; the state before is still whole.
        """
        if self.is_in_store:
            return
        with self._lock:
            saved = self._saved_already(lease.attempt, names)
            new = [name for name in names if name not in saved]
            with self._copies(f"{self.name}/{lease.attempt}", new) as prefix:
                written = dict(zip(new, self.store.publish(prefix, new), strict=True))
            files = []
            for name in names:
                one = written.get(name) or saved[name]
                path = f"{lease.attempt}/{name}"
                files.append(FileEntry(path=path, bytes=one.bytes, sha256=one.sha256, role="record"))
            lease.check()
            before = self._swap(State(label, tuple(files)))
            kept = {file.path for file in self._read().files}
            for old in {file.path for file in before} - kept:
                self.store.delete(f"{self.name}/{old}")
        log.info("saved %s to %s/%s", label, self.store.uri, self.name)

    def _saved_already(self, attempt: str, names: Sequence[str]) -> dict[str, FileEntry]:
        """Return the files that this run's saved state holds as they are: they need not travel again."""
        found = {}
        known = {file.path: file for file in self._read().files}
        for name in names:
            entry = known.get(f"{attempt}/{name}")
            path = self.path / name
            if entry and path.stat().st_size == entry.bytes and file_sha256(path) == entry.sha256:
                found[name] = entry
        return found

    @contextlib.contextmanager
    def _copies(self, prefix: str, names: Sequence[str]) -> Iterator[str]:
        """The files as hard links in the folder of `prefix`: the workers may remove theirs meanwhile."""
        folder = self.store.writable(prefix)
        try:
            for name in names:
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                os.link(self.path / name, target)
            yield prefix
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def saved_label(self) -> str:
        """The label of the saved state; "" where there is none, or where the folder is in the store itself.

        Raises:
            DataError: WORK.json is damaged.
        """
        return "" if self.is_in_store else self._read().label

    def restore(self, label: str) -> bool:
        """Bring the saved state here if it is newer than `label` ("" for none); whether it was.

        Raises:
            DataError: a file of the state is missing or changed.
        """
        state = State() if self.is_in_store else self._read()
        if not state.label > label:
            return False
        wanted = [Wanted(f"{self.name}/{file.path}", file.bytes, file.sha256) for file in state.files]
        for file, source in zip(state.files, self.store.fetch(wanted), strict=True):
            target = self.path / file.path.partition("/")[2]
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".restoring-{target.name}")
            shutil.copyfile(source, temporary)
            os.replace(temporary, target)
        log.info("brought %s from %s/%s", state.label, self.store.uri, self.name)
        return True

    def forget(self) -> None:
        """The key is committed: drop the saved state."""
        if self.is_in_store:
            return
        state = self._read()
        if state != State():
            STATE.write(self.store, self._place, State())
            for file in state.files:
                self.store.delete(f"{self.name}/{file.path}")
        shutil.rmtree(self.path, ignore_errors=True)

    @property
    def _place(self) -> str:
        return f"{self.name}/WORK.json"

    def _read(self) -> State:
        """Return the saved state; an empty one where there is none."""
        return STATE.read(self.store, self._place) or State()

    def _swap(self, state: State) -> Sequence[FileEntry]:
        """Write WORK.json over an older one; returns the files of the state that lost its place."""
        lost = state

        def newer(before: State | None) -> State | None:
            nonlocal lost
            lost = state if before and before.label > state.label else before or State()
            return None if lost is state else state

        STATE.change(self.store, self._place, newer)
        return lost.files
