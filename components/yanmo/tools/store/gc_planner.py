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
from collections import defaultdict
from collections.abc import Iterable, Iterator

from yanmo.common.errors import DataError
from yanmo.store.manifest import Manifest, Reference
from yanmo.store.objects import ObjectInfo, ObjectStore
from yanmo.store.output import check_manifest_at, find_output, manifest_name, superseded_name
from yanmo.store.runs.lease import holder_in
from yanmo.store.runs.run_record import is_run_record, run_record_name
from yanmo.store.runs.unfinished import UNFINISHED, Unfinished, is_unfinished_record, to_be_kept
from yanmo.tools.store.chain import edges, inputs_of
from yanmo.tools.store.gc_loose import SETTLED_SECONDS, judge_loose
from yanmo.tools.store.gc_plan import Ages, GcPlan, ToDelete, consumers_first, shown_age
from yanmo.tools.store.inventory import Inventory, KeyFolder, KeyName, is_working
from yanmo.tools.store.pointed import Named, read_all

_Wanted = tuple[Reference, str]
"""An output, and why it is needed."""
_REMADE_SECONDS = 4.0
"""How long an output that a pointer names and that is not there is waited for, before the store is called
damaged: a run that lost it to an earlier gc is tried again."""


class Planner:
    """Marks what is needed and decides about the rest."""

    def __init__(self, store: ObjectStore, inventory: Inventory, ages: Ages) -> None:
        self.store, self.inventory, self.ages = store, inventory, ages
        self.plan = GcPlan()
        self._now = store.clock()
        self._live: set[KeyName] = set()
        self._newest: set[KeyName] = set()
        """Channels' newest outputs: what these were made of, file by file, the next night uses again."""
        self._unfinished_keys: set[KeyName] = set()
        """Of trainings that may be finished: their checkpoints stay, however old."""
        self._manifests: dict[str, tuple[Manifest, bytes] | None] = {}

    def decide(self) -> GcPlan:
        """The plan; nothing is written.

        Raises:
            DataError: a pointer, record or needed manifest is damaged, so that nobody can know what it kept.
        """
        self._mark(self._roots(read_all(self.store, self._pointers_and_kept_runs())))
        for name in sorted(self.inventory.keys):
            if name not in self._live:
                self._judge(self.inventory.keys[name])
        self.plan.to_delete = list(consumers_first(self.plan.to_delete))
        judge_loose(self.store, self.inventory, self.plan, self.ages.older_than, self._is_worked_at)
        return self.plan

    def _is_old(self, modified: float, age: float | None = None) -> bool:
        return self._now - modified >= (self.ages.older_than if age is None else age)

    def _is_abandoned(self, tried_at: float) -> bool:
        return self._is_old(tried_at, self.ages.abandoned)

    def _roots(self, named_now: Iterable[Named]) -> Iterator[_Wanted]:
        for named in named_now:
            reference = self._settled(named).reference if named.is_pointer else named.reference
            if named.is_pointer and named.by.endswith(f"/{reference.stage}"):
                self._newest.add((reference.stage, reference.key))
            yield reference, named.by
        yield from self._of_unfinished_trainings()
        for name, folder in sorted(self.inventory.keys.items()):
            if is_working(self.store, folder):
                self._live.add(name)
                self.plan.kept[name] = "a run is making it now"
            if self._may_go_on(folder):
                for reference in inputs_of(self.store, folder):
                    yield reference, f"input of a run of {folder}"
            yield from self._young(folder)

    def _of_unfinished_trainings(self) -> Iterator[_Wanted]:
        """Yield what unfinished trainings rest on, which a channel's next run or a person may take up again,
        and the model of one that is made and waits for its verdict."""
        for info in filter(lambda info: is_unfinished_record(info.name), self.inventory.runs):
            record = UNFINISHED.read(self.store, info.name) or Unfinished()
            for training in to_be_kept(record, self._is_abandoned):
                self._unfinished_keys.add(("train", training.key))
                for reference in filter(None, training.inputs.values()):
                    yield reference, f"input of an unfinished training ({info.name})"
                if (model := find_output(self.store, "train", training.key)) is not None:
                    yield model.reference, f"a model that was not judged yet ({info.name})"

    def _pointers_and_kept_runs(self) -> list[ObjectInfo]:
        """All of pointers/ but the records of runs that are old and not of their channel's newest."""
        age = max(self.ages.older_than, SETTLED_SECONDS)
        listed, live = self.inventory.pointers, self._live_runs()
        by_channel: dict[str, list[ObjectInfo]] = defaultdict(list)
        for info in sorted(listed, key=lambda info: info.modified, reverse=True):
            if is_run_record(info.name):
                by_channel[info.name.split("/")[1]].append(info)
        passed_over = [info for infos in by_channel.values() for info in infos[self.ages.newest_runs :]]
        gone = {i for i in passed_over if self._is_old(i.modified, age) and i.name not in live}
        self.plan.runs = sorted(gone, key=lambda info: info.name)
        return [info for info in listed if info not in gone]

    def _live_runs(self) -> set[str]:
        """The records of runs for which a stage is at work: its training may last longer than any age; and of
        those that began a training which may be finished, as they say whose it is.

        A lease that was renewed within the age counts too: a minute of silence is a frozen node, or a store
        that could not be reached, and the run goes on after it.
        """
        found = self._of_begun_trainings()
        for folder in self.inventory.keys.values():
            if folder.lease and (not self._is_old(folder.lease.modified) or is_working(self.store, folder)):
                with contextlib.suppress(FileNotFoundError):
                    note = holder_in(self.store.read(folder.lease.name)[0])
                    found.add(run_record_name(note.channel, note.run_id))
        return found

    def _of_begun_trainings(self) -> set[str]:
        found = set()
        for info in filter(lambda info: is_unfinished_record(info.name), self.inventory.runs):
            channel = info.name.rpartition("/")[2].removesuffix(".json")
            record = UNFINISHED.read(self.store, info.name) or Unfinished()
            trainings = to_be_kept(record, self._is_abandoned)
            found |= {run_record_name(channel, one.run_id) for one in trainings if one.run_id}
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
        if self._is_there(named.reference):
            return named
        reference = named.reference
        raise DataError(
            f"{self.store.uri}/pointers/{named.by}.json: names {reference.stage}/{reference.key[:12]}, found "
            f"nothing of it; restore it, or run the {reference.stage} stage again. To let go of all that it "
            "rests on, delete the pointer by hand first"
        )

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
        if folder.name in self._live:
            return True
        if folder.inputs is None:
            return False
        if folder.name in self._newest:
            return True
        return not self._is_old(folder.inputs.modified) or (
            not folder.manifest and self._has_kept_work(folder)
        )

    def _has_kept_work(self, folder: KeyFolder) -> bool:
        work = folder.checkpoints
        if not work or folder.name in self._unfinished_keys:
            return bool(work)
        return not self._is_old(max(info.modified for info in work), self.ages.abandoned)

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
            found = self._pinned(reference, why)
            if found is None:
                self.plan.dangling.append(f"{why}: {reference.stage}/{reference.key[:12]} is not there")
                continue
            waiting += [
                (edge.reference, f"{edge.label} of {reference.stage}/{reference.key[:12]}")
                for manifest in (found, *self._opened_instead(reference, found))
                for edge in edges(manifest)
            ]

    def _opened_instead(self, reference: Reference, found: Manifest) -> list[Manifest]:
        """The manifest that readers of `reference` open, where it is another than the one that it pins.

        `--force` may have put one of equal content in its place since, which names parts of its own.
        """
        here = self._read(manifest_name(reference.stage, reference.key))
        if here is None or here[0] is found or here[0].content_digest != reference.content_digest:
            return []
        return [here[0]]

    def _pinned(self, reference: Reference, why: str) -> Manifest | None:
        """The manifest that `reference` pins; one that was set aside is to be restored.

        None where nothing of the key is there any more.

        Raises:
            DataError: anything else lies in its place, so that nobody knows which files it names.
        """
        stage, key = reference.stage, reference.key
        folder = self.inventory.keys.get((stage, key))
        if folder is None or not any(folder.objects):
            return None
        here = self._read(manifest_name(stage, key))  # raises where it is damaged, or of another key
        set_aside = superseded_name(stage, key, reference.manifest_sha256)
        for name in (manifest_name(stage, key), set_aside):
            found = self._read(name)
            if found and hashlib.sha256(found[1]).hexdigest() == reference.manifest_sha256:
                if found[0].content_digest != reference.content_digest:
                    break
                if folder.manifest is None:
                    self.plan.restore.append(((stage, key), name))
                return found[0]
        if here and here[0].content_digest == reference.content_digest and self._is_all_of(here, folder):
            return here[0]  # committed again after its manifest was lost: the same content
        if here is None and folder.name in self._live:
            return None  # lost before, and being made again now
        raise DataError(
            f"{self.store.uri}/{manifest_name(stage, key)}: {why} pins the manifest with sha256 "
            f"{reference.manifest_sha256[:16]}..., "
            + (f"found {hashlib.sha256(here[1]).hexdigest()[:16]}..." if here else "found none")
            + f", and none next to it; restore it, or run the {stage} stage again with --force. Only where "
            "that gives other content, remove by hand what still refers to the lost one (`yanmo store "
            "verify` lists it)"
        )

    def _is_all_of(self, here: tuple[Manifest, bytes], folder: KeyFolder) -> bool:
        """Return whether the manifest in place stands for all of its key, so that other attempts may go.

        Not an older one that was put back by hand: `--force` kept that next to it, under its own name. Where
        there are files of other attempts, its own may be the damaged ones: every file is read then. That
        happens once, as the others are removed.
        """
        manifest, data = here
        sha256 = hashlib.sha256(data).hexdigest()
        if self._read(superseded_name(manifest.stage, manifest.key, sha256)) is not None:
            return False
        if not folder.has_others_than(manifest):
            return True
        output = find_output(self.store, *folder.name)
        return output is not None and output.reference.manifest_sha256 == sha256 and not output.is_damaged()

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
            self._list_debris(folder, self._used_attempts(folder))
        # else it is needed and not there: nothing of it is touched

    def _list_debris(self, folder: KeyFolder, used: set[str]) -> None:
        """Enter in the plan what lies next to the output, if there is one."""
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
        data = found[1] if found else self.store.read(folder.manifest.name)[0]
        objects = [folder.manifest, *folder.old_manifests]
        objects += [info for infos in folder.attempts.values() for info in infos]
        objects += folder.work
        manifest = found[0] if found else None
        self.plan.to_delete.append(ToDelete(folder, objects, why, True, manifest, data, folder.leftovers))

    def _used_attempts(self, folder: KeyFolder) -> set[str]:
        """Return the attempts that the manifest in place names, or one that `--force` replaced."""
        assert folder.manifest
        found = [self._read_old(info.name) for info in (folder.manifest, *folder.old_manifests)]
        return {one[0].attempt for one in found if one}

    def _old_work(self, folder: KeyFolder) -> list[ObjectInfo]:
        if not folder.work or not self._is_old(max(info.modified for info in folder.work)):
            return []
        if folder.manifest is None and self._has_kept_work(folder):
            return []
        inputs = None if folder.name in self._newest else folder.inputs
        return [*folder.checkpoints, *(info for info in (inputs, folder.lease) if info)]

    def _is_worked_at(self, folder: KeyFolder) -> bool:
        """Return whether its work goes on, or may."""
        return folder.manifest is None and bool(folder.work) and not self._old_work(folder)
