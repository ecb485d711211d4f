"""What gc may remove and what it must keep, decided from one listing.

Kept, with all their inputs and parts, transitively:
- what a pointer or a record of a history names, or the record of a run that is young or of the newest runs;
- what a training rests on that a channel has begun and not judged, its checkpoints and its model; also where
  it was given up or left and is not abandoned yet;
- what a live run makes or rests on (LEASE.json, INPUTS.json), and an unfinished one that may go on;
- what a channel's newest output was made of file by file (the rest of its INPUTS.json): a night curates and
  tokenizes only what is new, however long ago the last one was;
- what is younger than the given age, since a pipeline may hold its reference in an artifact only.

What `--force` replaced stays with its files as long as the output of its key; what it was made from only for
who refers to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from yanmo.common.errors import DataError
from yanmo.store.manifest import Manifest, Reference
from yanmo.store.objects import ObjectInfo, ObjectStore
from yanmo.store.output import check_manifest_at, find_output, manifest_name, superseded_name
from yanmo.store.runs.auto_record import AUTO_RECORD, is_auto_record
from yanmo.store.runs.in_use import LEASE
from yanmo.store.runs.lease import holder_in, is_held
from yanmo.store.runs.run_record import is_run_record, run_record_name
from yanmo.store.runs.unfinished import UNFINISHED, Training, Unfinished, is_unfinished_record, to_be_kept
from yanmo.tools.store.chain import edges, inputs_of
from yanmo.tools.store.gc_plan import GcPlan, ToDelete, consumers_first, shown_age
from yanmo.tools.store.inventory import Inventory, KeyFolder, KeyName, is_working, local_run
from yanmo.tools.store.pointed import Named, read_all

_Wanted = tuple[Reference, str]
"""An output, and why it is needed."""
SETTLED_SECONDS = 2.0
"""Nothing that a lease does not guard is removed younger than this: its writer may be at it now. (The
temporary files of a folder are locked while they are written, a moment after they appear.)"""
_REMADE_SECONDS = 4.0
"""How long an output that a pointer names and that is not there is waited for, before the store is called
damaged: a run that lost it to an earlier gc is tried again."""
_PROBE_SECONDS = 3600.0
"""A probe that goes too early says that the server ignores conditional writes; a slow one may be asked."""


@dataclass(frozen=True)
class Ages:
    """The ages in seconds from which things may be removed."""

    older_than: float
    abandoned: float
    """Work of a key that was never finished."""
    newest_runs: int = 0
    """Of each channel, whose records stay however old."""


class Planner:
    """Marks what is needed and decides about the rest."""

    def __init__(self, store: ObjectStore, inventory: Inventory, ages: Ages) -> None:
        self.store, self.inventory, self.ages = store, inventory, ages
        self.plan = GcPlan()
        self._now = store.clock()
        self._live: set[KeyName] = set()
        self._newest: set[KeyName] = set()
        """Channels' newest outputs: what these were made of, file by file, the next night uses again."""
        self._unfinished: list[tuple[ObjectInfo, Training]] = []
        """Trainings that may be finished, and the record that says so: their checkpoints stay."""
        self._manifests: dict[str, tuple[Manifest, bytes] | None] = {}

    def decide(self) -> GcPlan:
        """The plan; nothing is written.

        Raises:
            DataError: a pointer, record or needed manifest is damaged, or the output of a pointer is lost
                whole, so that nobody can know what it kept.
        """
        keys = self.inventory.keys
        self._live = {name for name, folder in keys.items() if is_working(self.store, folder)}
        for info in filter(lambda info: is_unfinished_record(info.name), self.inventory.runs):
            record = UNFINISHED.read(self.store, info.name) or Unfinished()
            self._unfinished += [(info, one) for one in to_be_kept(record, self._is_abandoned)]
        self._mark(self._roots())
        for name in sorted(keys.keys() - self._live):
            self._judge(keys[name])
        self.plan.to_delete = list(consumers_first(self.plan.to_delete))
        self._judge_loose()
        return self.plan

    def _is_old(self, modified: float, age: float | None = None) -> bool:
        return self._now - modified >= (self.ages.older_than if age is None else age)

    def _is_abandoned(self, tried_at: float) -> bool:
        return self._is_old(tried_at, self.ages.abandoned)

    def _roots(self) -> Iterator[_Wanted]:
        for named in read_all(self.store, self._pointers_and_kept_runs()):
            reference = self._settled(named).reference if named.is_pointer else named.reference
            if named.is_pointer and named.by.endswith(f"/{reference.stage}"):
                self._newest.add((reference.stage, reference.key))
            yield reference, named.by
        for info, training in self._unfinished:
            for reference in filter(None, training.inputs.values()):
                yield reference, f"input of an unfinished training ({info.name})"
            if (model := find_output(self.store, "train", training.key)) is not None:
                yield model.reference, f"a model that was not judged yet ({info.name})"
        for name, folder in sorted(self.inventory.keys.items()):
            if name in self._live:
                self.plan.kept[name] = "a run is making it now"
            if self._may_go_on(folder):
                for reference in inputs_of(self.store, folder):
                    yield reference, f"input of a run of {folder}"
            yield from self._young(folder)

    def _pointers_and_kept_runs(self) -> list[ObjectInfo]:
        """All of pointers/ but the records of runs that are old and not of their channel's newest."""
        age, live = max(self.ages.older_than, SETTLED_SECONDS), self._live_runs()
        listed = sorted(self.inventory.pointers, key=lambda info: info.modified, reverse=True)
        met: Counter[str] = Counter()
        for info in filter(lambda info: is_run_record(info.name), listed):
            channel = info.name.split("/")[1]
            met[channel] += 1
            is_newest = met[channel] <= self.ages.newest_runs
            if self._is_old(info.modified, age) and not is_newest and info.name not in live:
                self.plan.runs.append(info)
        gone = {info.name for info in self.plan.runs}
        return [info for info in self.inventory.pointers if info.name not in gone]

    def _live_runs(self) -> set[str]:
        """The records of runs for which a stage is at work: its training may last longer than any age; and of
        those that began a training which may be finished, as they say whose it is.

        A lease that was renewed within the age counts too: a minute of silence is a frozen node, or a store
        that could not be reached, and the run goes on after it.
        """
        channels = (
            (info.name.rpartition("/")[2].removesuffix(".json"), one) for info, one in self._unfinished
        )
        found = {run_record_name(channel, one.run_id) for channel, one in channels if one.run_id}
        for folder in self.inventory.keys.values():
            if folder.lease and (not self._is_old(folder.lease.modified) or folder.name in self._live):
                with contextlib.suppress(FileNotFoundError):
                    note = holder_in(self.store.read(folder.lease.name)[0]).note
                    found.add(run_record_name(note.get("channel", ""), note.get("run_id", "")))
        return found

    def _settled(self, named: Named) -> Named:
        """The pointer, once its output is there: a run that an earlier gc disturbed may be making it again.

        Raises:
            DataError: the output is lost whole. What it rests on is not known without it: such a store is
                half restored, maybe, and what its outputs rest on would go.
        """
        end = time.monotonic() + _REMADE_SECONDS
        while not self._is_there(named.reference) and time.monotonic() < end:
            time.sleep(0.05)
            info = self.store.stat(f"pointers/{named.by}.json")
            named = next(read_all(self.store, [info] if info else []), named)
        reference = named.reference
        if not self._is_there(reference):
            raise DataError(
                f"nothing was removed: {self.store.uri}/pointers/{named.by}.json names "
                f"{reference.stage}/{reference.key[:12]}, found nothing of it; restore it, or run the "
                f"{reference.stage} stage again. To let go of all that it rests on, delete the pointer by "
                "hand first"
            )
        return named

    def _is_there(self, reference: Reference) -> bool:
        folder = self.inventory.keys.get((reference.stage, reference.key))
        if folder is not None and (any(folder.objects) or is_working(self.store, folder)):
            return True
        return self.store.stat(reference.manifest_uri) is not None  # committed since the store was listed

    def _young(self, folder: KeyFolder) -> Iterator[_Wanted]:
        """The edges of manifests that are too young to be removed."""
        if folder.manifest is None:
            return  # none, or set aside by a gc that was killed
        for info in [folder.manifest, *folder.old_manifests]:
            if self._is_old(info.modified) and folder.name not in self._live:
                continue
            if info is folder.manifest:
                self.plan.kept.setdefault(folder.name, f"younger than {shown_age(self.ages.older_than)}")
            found = self._read(info.name) if info is folder.manifest else self._read_old(info.name)
            for edge in edges(found[0]) if found else ():
                yield edge.reference, f"{edge.label} of {folder}"

    def _may_go_on(self, folder: KeyFolder) -> bool:
        """Return whether a live run, one that goes on, or the next night needs what a key rests on."""
        return folder.inputs is not None and (
            folder.name in self._live | self._newest
            or not self._is_old(folder.inputs.modified)
            or (not folder.manifest and self._has_kept_work(folder))
        )

    def _has_kept_work(self, folder: KeyFolder) -> bool:
        work = folder.checkpoints
        if not work or folder.name in {("train", training.key) for _, training in self._unfinished}:
            return bool(work)
        return not self._is_abandoned(max(info.modified for info in work))

    def _mark(self, roots: Iterable[_Wanted]) -> None:
        waiting = list(roots)[::-1]
        for reference, why in reversed(waiting):  # a pointer is a better reason than a chain
            self.plan.kept.setdefault((reference.stage, reference.key), why)
        while waiting:
            reference, why = waiting.pop()
            name, sha256 = (reference.stage, reference.key), reference.manifest_sha256
            if (name, sha256) in self.plan.pinned:
                continue
            self.plan.pinned.add((name, sha256))
            self.plan.kept.setdefault(name, why)
            found = self._opened(reference, why)
            if not found:
                self.plan.dangling.append(f"{why}: {reference.stage}/{reference.key[:12]} is not there")
            waiting += [
                (edge.reference, f"{edge.label} of {reference.stage}/{reference.key[:12]}")
                for manifest in found
                for edge in edges(manifest)
            ]

    def _opened(self, reference: Reference, why: str) -> list[Manifest]:
        """Return the manifests that readers of `reference` may open; one that was set aside is restored.

        The one that it pins, and, where `--force` has put one of equal content in its place, which names
        parts of its own, that one too. None where nothing of the key is there any more.

        Raises:
            DataError: anything else lies in its place, so that nobody knows which files it names.
        """
        stage, key = reference.stage, reference.key
        folder = self.inventory.keys.get((stage, key))
        if folder is None or not any(folder.objects):
            return []
        here = self._read(manifest_name(stage, key))  # raises where it is damaged, or of another key
        set_aside = superseded_name(stage, key, reference.manifest_sha256)
        found = [one for one in (here, self._read(set_aside)) if one]
        whole = [one[0] for one in found if one[0].content_digest == reference.content_digest]
        if here and len(found) == 1 and self._is_put_back(here, reference):
            whole = []
        if whole and here is None:
            self.plan.restore.append(((stage, key), set_aside))
        if whole or (here is None and folder.name in self._live):  # lost before, and being made again now
            return whole
        raise DataError(
            f"{self.store.uri}/{manifest_name(stage, key)}: {why} pins the manifest with sha256 "
            f"{reference.manifest_sha256[:16]}..., "
            + (f"found {hashlib.sha256(here[1]).hexdigest()[:16]}..." if here else "found none")
            + f", and none next to it; restore it, or run the {stage} stage again with --force. Only where "
            "that gives other content, remove by hand what still refers to the lost one (`yanmo store "
            "verify` lists it)"
        )

    def _is_put_back(self, here: tuple[Manifest, bytes], reference: Reference) -> bool:
        """Return whether somebody put an older manifest into the place of the pinned one: `--force` kept it
        next to that, under its own name. Of equal content, its own files may be the damaged ones."""
        sha256 = hashlib.sha256(here[1]).hexdigest()
        beside = superseded_name(reference.stage, reference.key, sha256)
        return sha256 != reference.manifest_sha256 and self._read(beside) is not None

    def _read_old(self, name: str) -> tuple[Manifest, bytes] | None:
        """`_read`, where a damaged manifest may be passed over."""
        try:
            return self._read(name)
        except DataError:
            return None

    def _read(self, name: str) -> tuple[Manifest, bytes] | None:
        if name not in self._manifests:
            try:
                data, _ = self.store.read(name)
                self._manifests[name] = check_manifest_at(data, self.store.uri, name), data
            except FileNotFoundError:
                self._manifests[name] = None
        return self._manifests[name]

    def _judge(self, folder: KeyFolder) -> None:
        """Decide what of a key that no live run holds is removed."""
        if folder.name not in self.plan.kept:
            self._list_all(folder) if folder.manifest else self._list_debris(folder, set())
        elif folder.manifest:
            manifests = [self._read_old(info.name) for info in (folder.manifest, *folder.old_manifests)]
            self._list_debris(folder, {one[0].attempt for one in manifests if one})
        # else it is needed and not there: nothing of it is touched

    def _list_debris(self, folder: KeyFolder, used: set[str]) -> None:
        """Enter in the plan what lies next to the output, if there is one.

        Args:
            used: attempts that a manifest names, the one in place or one that `--force` replaced.
        """
        old = [] if folder.manifest else folder.old_manifests
        objects = list(old)
        why = ["a manifest that was set aside"] if old else []
        for attempt, files in sorted(folder.attempts.items()):
            if attempt not in used and self._is_old(max(info.modified for info in files)):
                objects += files
                why.append("an attempt that was never committed, or replaced")
        work = self._old_work(folder)
        if work:
            objects += work
            why.append("work of a finished run" if folder.manifest else "what a run left that never finished")
        leftovers = [one for one in folder.leftovers if self._is_old(one.modified)]
        why += [one.what for one in leftovers]
        if objects or leftovers:
            found = self._read(folder.manifest.name) if folder.manifest else None
            data = found[1] if found else b""
            self.plan.to_delete.append(
                ToDelete(folder, objects, "; ".join(dict.fromkeys(why)), data=data, leftovers=leftovers)
            )

    def _list_all(self, folder: KeyFolder) -> None:
        """The output and all that lies next to it; its manifest first."""
        assert folder.manifest
        found = self._read_old(folder.manifest.name)
        why = f"nothing refers to it, and it is older than {shown_age(self.ages.older_than)}"
        if found is None:
            why = f"its manifest is damaged; {why}"
        manifest, data = found or (None, self.store.read(folder.manifest.name)[0])
        objects = [*folder.objects, *folder.work]
        self.plan.to_delete.append(ToDelete(folder, objects, why, True, manifest, data, folder.leftovers))

    def _old_work(self, folder: KeyFolder) -> list[ObjectInfo]:
        if not folder.work or not self._is_old(max(info.modified for info in folder.work)):
            return []
        if folder.manifest is None and self._has_kept_work(folder):
            return []
        inputs = None if folder.name in self._newest else folder.inputs
        return [*folder.checkpoints, *(info for info in (inputs, folder.lease) if info)]

    def _judge_loose(self) -> None:
        """Enter in the plan what belongs to no key: records of `auto`, probes, KFP's files, leftovers."""
        age, found = max(self.ages.older_than, SETTLED_SECONDS), self.inventory
        for info in found.runs:
            if is_auto_record(info.name) and self._is_old(info.modified, age) and not self._is_needed(info):
                self.plan.loose.append((info, "what `auto` became, of an output that is gone"))
        for info in found.probes:
            if self._is_old(info.modified, max(age, _PROBE_SECONDS)):
                self.plan.loose.append((info, "a probe of conditional writes"))
        young = {local_run(info.name) for info in found.kfp if not self._is_old(info.modified, age)}
        ended = {local_run(info.name) for info in found.kfp} - young
        gone = {run for run in ended if not is_held(self.store, f"{run}/{LEASE}")}
        self.plan.loose += [
            (info, "KFP's files of a finished run") for info in found.kfp if local_run(info.name) in gone
        ]
        self.plan.loose += [(one, one.what) for one in found.leftovers if self._is_old(one.modified)]

    def _is_needed(self, info: ObjectInfo) -> bool:
        """Return whether the key of a record of `auto` is kept, or its work goes on; of a damaged one too."""
        try:
            record = AUTO_RECORD.read(self.store, info.name)
        except DataError:
            return True
        folder = self.inventory.keys.get((record.stage, record.key)) if record else None
        if folder is None:
            return False
        is_worked_at = folder.manifest is None and bool(folder.work) and not self._old_work(folder)
        return folder.name in self.plan.kept or is_worked_at
