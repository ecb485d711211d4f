"""Carries out a plan of gc while runs go on.

Why nothing that is needed can go, though runs commit and move pointers meanwhile:

1. Everything of a key is removed only under that key's lease. A live run holds it, so gc passes by; a run
   that begins waits for gc, and then finds no manifest and makes its own. A run that lost its lease (a laptop
   that slept) cannot commit over what gc removed: its next look at the lease ends it.
2. A committed output is first set aside (MANIFEST.json is copied next to itself and removed), then pointers
   and INPUTS.json are read again; what is still unneeded is removed, the rest gets its manifest back. Who
   reads a reference meanwhile finds the manifest under its second name (`open_reference`).
   Whoever takes up an output says so first (moves the pointer, writes INPUTS.json) and then looks whether its
   manifest is there (`commit.check_present`). Of two that each write and then read, one sees the other: gc
   restores, or the run ends with exit code 75 and makes the output again when it is retried. What `--force`
   replaced goes only with the output of its key.
3. Consumers go before what they were made from, manifests before files. Killed anywhere, gc leaves every
   remaining output with all its files and its whole chain; one that was set aside is removed by the next
   gc, or restored if it is needed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from yanmo.common.errors import DataError, LeaseLost
from yanmo.common.logs import Progress
from yanmo.store.manifest import Manifest, Reference
from yanmo.store.objects import AlreadyExists, Leftover, ObjectInfo, ObjectStore
from yanmo.store.output import manifest_name, superseded_name
from yanmo.store.runs.in_use import LEASE, lease_name
from yanmo.store.runs.lease import TTL_SECONDS, Lease, is_held
from yanmo.tools.store.chain import Opener, edges, inputs_of
from yanmo.tools.store.gc_plan import GcPlan, ToDelete
from yanmo.tools.store.inventory import KeyName, local_run, take
from yanmo.tools.store.pointed import Named, read_all

log = logging.getLogger(__name__)
BATCH = 32
"""Keys that share one look at the pointers; each holds a lease, renewed by a thread."""
_SKEW_SECONDS = 600.0


@dataclass
class Swept:
    """What was done."""

    objects: int = 0
    bytes: int = 0
    spared: list[str] = field(default_factory=list)
    """Keys that turned out to be in use, and why."""
    stayed: set[KeyName] = field(default_factory=set)
    """The same keys."""


class Sweep:
    """Removes what a plan says."""

    def __init__(self, store: ObjectStore, plan: GcPlan) -> None:
        self.store, self.plan, self.done = store, plan, Swept()
        self._since = store.clock()
        self._opener = Opener(store)
        self._to_delete = {one.folder.name: one for one in plan.to_delete}
        self._held: dict[KeyName, Lease] = {}
        """Leases of this batch: no run makes these keys, whatever their INPUTS.json says."""
        self._asked: dict[str, bool] = {}
        """Folder of a `yanmo run` -> whether that holds its lease."""

    def run(self) -> Swept:
        """Restore what a killed gc set aside and is needed, then remove what the plan says."""
        for name, kept in self.plan.restore:
            self._restore(name, kept)
        for info in self.plan.runs:
            self._forget_run(info)
        progress = Progress(log, "removed", max(1, self.plan.bytes), unit="B")
        waiting = iter(self.plan.to_delete)
        while batch := list(itertools.islice(waiting, BATCH)):
            self._batch(batch, progress)
        for loose, _ in self.plan.loose:
            self._remove_loose(loose)
        return self.done

    def _forget_run(self, info: ObjectInfo) -> None:
        """Remove the record of a run, unless a retry of the run has written to it since it was listed."""
        now = self.store.stat(info.name)
        # S3 tells whole seconds in one of two places.
        if now is not None and now.modified < info.modified + 1:
            self.store.delete(info.name)
            self._count(info.bytes)

    def _remove_loose(self, info: ObjectInfo | Leftover) -> None:
        run = local_run(info.name)
        if run and run not in self._asked:  # once, just before the folder goes
            self._asked[run] = is_held(self.store, f"{run}/{LEASE}")
            if self._asked[run]:
                self.done.spared.append(f"{run}: `yanmo run` is at work")
        if not self._asked.get(run):
            info.remove() if isinstance(info, Leftover) else self.store.delete(info.name)
            self._count(info.bytes)

    def _count(self, size: int) -> None:
        self.done.objects += 1
        self.done.bytes += size

    def _batch(self, batch: list[ToDelete], progress: Progress) -> None:
        with self._taken(batch) as taken:
            needed = self._needed_now() if taken else set()
            set_aside = [one for one in taken if one.is_whole and not _is_needed(one, needed)]
            lost = {one.folder.name for one in set_aside if not self._set_aside(one)}
            needed |= self._needed_now() if set_aside else set()
            for one in taken:
                if one.folder.name not in lost:
                    self._finish(one, needed)
                self._held.pop(one.folder.name).remove()
                progress.add(one.bytes)

    @contextlib.contextmanager
    def _taken(self, batch: Sequence[ToDelete]) -> Iterator[list[ToDelete]]:
        """Those of the keys whose lease was free; it is held until the end of the block, or removed there."""
        try:
            self._take_all(batch)
            yield [one for one in batch if one.folder.name in self._held]
        finally:
            for lease in self._held.values():
                lease.release()
            self._held.clear()

    def _take_all(self, batch: Sequence[ToDelete]) -> None:
        """Take the leases of all keys that no run has and that nobody changed since the plan.

        The plan held these leases to be over. Of another machine's it is known only after watching it for
        some time (store/runs/lease.py), so these are asked again.
        """
        waiting = [(one, Lease(self.store, lease_name(*one.folder.name), "gc")) for one in batch]
        end = time.monotonic() + TTL_SECONDS
        while waiting:
            refused = [(one, lease) for one, lease in waiting if not self._take(one, lease)]
            waiting = []
            for one, lease in refused:
                if is_held(self.store, lease_name(*one.folder.name)) or time.monotonic() > end:
                    self._spare(one, "a run makes it")
                else:
                    waiting.append((one, lease))
            time.sleep(1.0 if waiting else 0.0)

    def _take(self, one: ToDelete, lease: Lease) -> bool:
        """Return whether the lease was free; it is held then, unless the key was changed since the plan."""
        if not lease.acquire():
            return False
        if self._current(one.folder.name) == one.data:
            self._held[one.folder.name] = lease
        else:
            lease.remove()
            self._spare(one, "was committed since it was listed")
        return True

    def _current(self, name: KeyName) -> bytes:
        try:
            return self.store.read(manifest_name(*name))[0]
        except FileNotFoundError:
            return b""

    def _set_aside(self, one: ToDelete) -> bool:
        """Set the manifest aside; False where the lease was lost or another manifest is there by now."""
        with contextlib.suppress(AlreadyExists):
            self.store.create(_aside_name(one), one.data)
        if not self._is_ours(one) or self._current(one.folder.name) != one.data:
            self._spare(one, "a run took it over")
            return False
        self.store.delete(manifest_name(*one.folder.name))
        return True

    def _is_ours(self, one: ToDelete) -> bool:
        """Return whether the lease of a key is still held; a machine that slept may have lost it."""
        try:
            self._held[one.folder.name].check()
        except LeaseLost:
            return False
        return True

    def _spare(self, one: ToDelete, why: str) -> None:
        self.done.spared.append(f"{one.folder}: {why}")
        self.done.stayed.add(one.folder.name)

    def _finish(self, one: ToDelete, needed: set[tuple[KeyName, str]]) -> None:
        """Remove what the plan says of a key, or put back its manifest that was set aside."""
        name = one.folder.name
        if _is_needed(one, needed):
            if one.is_whole:
                with contextlib.suppress(AlreadyExists):
                    self.store.create(manifest_name(*name), one.data)
                self.store.delete(_aside_name(one))
            self._spare(one, "something refers to it now")
            return
        if not self._is_ours(one):
            self._spare(one, "a run took it over")
            return
        if one.is_whole:
            self.store.delete(_aside_name(one))
        for info in one.objects:
            if info.name != lease_name(*name):  # it is ours now, and goes last
                self.store.delete(info.name)
            self._count(info.bytes)
        for leftover in one.leftovers:
            leftover.remove()
            self._count(leftover.bytes)

    def _restore(self, name: KeyName, kept: str) -> None:
        lease = Lease(self.store, lease_name(*name), "gc")
        if not lease.acquire():
            return
        try:
            with contextlib.suppress(AlreadyExists, FileNotFoundError):
                self.store.create(manifest_name(*name), self.store.read(kept)[0])
                log.info("%s/%s is needed: its manifest, which was set aside, is back", name[0], name[1][:12])
        finally:
            lease.remove()

    def _needed_now(self) -> set[tuple[KeyName, str]]:
        """Key and manifest sha256 of all that is referred to now and was not when the plan was made."""
        found: set[tuple[KeyName, str]] = set()
        waiting = [named.reference for named in self._named_now()]
        while waiting:
            reference = waiting.pop()
            mark = ((reference.stage, reference.key), reference.manifest_sha256)
            if mark in found or mark in self.plan.pinned:
                continue
            found.add(mark)
            manifest = self._manifest(reference)
            waiting += [edge.reference for edge in edges(manifest)] if manifest else []
        return found

    def _named_now(self) -> Iterator[Named]:
        yield from read_all(self.store, take(self.store, "pointers", leftovers=False).pointers)
        for name, folder in take(self.store, "runs", leftovers=False).keys.items():
            recent = any(info.modified >= self._since - _SKEW_SECONDS for info in folder.work)
            if folder.inputs and name not in self._held and recent:  # older ones were read for the plan
                for reference in inputs_of(self.store, folder):
                    yield Named(folder.inputs.name, reference, folder.inputs.modified)

    def _manifest(self, reference: Reference) -> Manifest | None:
        one = self._to_delete.get((reference.stage, reference.key))
        if one and one.manifest:
            return one.manifest
        try:
            return self._opener.open(reference).manifest
        except DataError:
            if self.store.stat(reference.manifest_uri) is not None:
                raise  # it is there, and not what was asked for: nobody knows what it rests on
            return None


def _aside_name(one: ToDelete) -> str:
    return superseded_name(*one.folder.name, hashlib.sha256(one.data).hexdigest())


def _is_needed(one: ToDelete, needed: set[tuple[KeyName, str]]) -> bool:
    """Return whether a new reference names the output that is to go, or one that a killed gc set aside."""
    if one.is_whole:
        return any(name == one.folder.name for name, _ in needed)
    return any(
        superseded_name(*name, sha256) == info.name
        for name, sha256 in needed
        if name == one.folder.name
        for info in one.objects
    )
