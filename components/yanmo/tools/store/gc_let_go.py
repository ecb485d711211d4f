"""Lets go of the data of outputs that only former champions rest on, while runs go on.

1. All is done under the lease of the key, as in gc_sweep.py.
2. The tables of ids are written, then LET_GO.json, which says which files go; then pointers and INPUTS.json
   are read again, and the record is taken back where the output is needed now. Whoever takes up an output
   says so first and then looks for that record (`in_use.check_present`). So one of the two sees the other.
3. Only then are files removed. Killed anywhere, gc leaves an output whole, or with a record of what is to
   go; the next gc goes on with it, or takes it back where the output is needed and nothing of it is gone.

Cost: each table of texts is read once, for its ids; on S3 that is a download.
"""

from __future__ import annotations

import itertools

from yanmo.common.errors import DataError
from yanmo.common.logs import Progress
from yanmo.store.let_go import (
    data_of,
    folder_of,
    has_lost_data,
    has_texts,
    prefix_of,
    read_let_go,
    withdraw_let_go,
    write_let_go,
)
from yanmo.store.manifest import FileEntry, Manifest
from yanmo.store.objects import ObjectStore, Wanted, Written, check_size
from yanmo.tools.store.chain import edges
from yanmo.tools.store.gc_plan import ToDelete, ToLetGo
from yanmo.tools.store.gc_sweep import BATCH, Sweep, Swept, log
from yanmo.tools.store.inventory import KeyName


class LettingGo(Sweep):
    """Lets go of what a plan says."""

    def run(self) -> Swept:
        for one in self.plan.take_back:
            self._take_back(one)
        progress = Progress(log, "let go", max(1, sum(one.bytes for one in self.plan.let_go)), unit="B")
        waiting = iter(self.plan.let_go)
        while batch := list(itertools.islice(waiting, BATCH)):
            self._let_go(batch, progress)
        return self.done

    def _let_go(self, batch: list[ToLetGo], progress: Progress) -> None:
        with self._taken(batch) as taken:
            recorded = {one.folder.name for one in taken if self._record(one)}
            needed = self._data_needed_now() if recorded else set()
            for one in taken:
                if one.folder.name in recorded:
                    self._remove(one, needed)
                self._held.pop(one.folder.name).remove()
                progress.add(one.bytes)

    def _record(self, one: ToLetGo) -> bool:
        """Write what stays in the place of the data, and what goes; False where the data is damaged."""
        try:
            for manifest in one.manifests:
                if data_of(manifest) and read_let_go(self.store, manifest) is None:
                    tables = record(self.store, manifest)
                    self.done.bytes -= sum(table.bytes for table in tables.values() if table)
        except DataError as error:
            self._spare(one, f"its data is damaged: {error}")
            return False
        return True

    def _remove(self, one: ToLetGo, needed: set[KeyName]) -> None:
        if one.folder.name in needed:
            self._spare(one, "something refers to it now")
            for manifest in one.manifests:
                if not has_lost_data(self.store, manifest):
                    withdraw_let_go(self.store, manifest)
        elif not self._is_ours(one):
            self._spare(one, "a run took it over")
        else:
            known = {name for manifest in one.manifests for name in _recorded(self.store, manifest)}
            for info in one.objects:
                if info.name in known:
                    self.store.delete(info.name)
                    self._count(info.bytes)

    def _take_back(self, one: ToDelete) -> None:
        with self._taken([one]) as taken:
            for info in (info for each in taken for info in each.objects):
                self.store.delete(info.name)
            for each in taken:
                self._held.pop(each.folder.name).remove()

    def _data_needed_now(self) -> set[KeyName]:
        """What is referred to now and was not when the plan was made, and all that it rests on."""
        found: set[KeyName] = set()
        waiting = [
            named.reference
            for named in self._named_now()
            if (named.by, named.reference) not in self.plan.roots
            and (named.by, named.modified) not in self.plan.listed_inputs
        ]
        while waiting:
            reference = waiting.pop()
            if (name := (reference.stage, reference.key)) not in found:
                found.add(name)
                manifest = self._manifest(reference)
                waiting += [edge.reference for edge in edges(manifest)] if manifest else []
        return found


def record(store: ObjectStore, manifest: Manifest) -> dict[str, Written | None]:
    """Write the tables of ids of an output, then LET_GO.json; the tables, by file.

    Raises:
        DataError: a file is missing, short or changed: what is damaged is not let go.
    """
    tables = {entry.path: _table(store, manifest, entry) for entry in data_of(manifest)}
    store.settle(folder_of(manifest))
    write_let_go(store, manifest, tables)
    return tables


def _table(store: ObjectStore, manifest: Manifest, entry: FileEntry) -> Written | None:
    wanted = Wanted(f"{prefix_of(manifest)}{entry.path}", entry.bytes, entry.sha256)
    if not has_texts(entry):
        check_size(f"{store.uri}/{wanted.name}", wanted, store.sizes([wanted.name])[0])
        return None
    from yanmo.formats.id_table import write_ids  # pyarrow, which a dry run does not need

    source = store.fetch([wanted])[0]
    target = store.writable(folder_of(manifest)) / entry.path
    target.parent.mkdir(parents=True, exist_ok=True)
    write_ids(source, target)
    store.release([source])
    return store.publish(folder_of(manifest), [entry.path])[0]


def _recorded(store: ObjectStore, manifest: Manifest) -> list[str]:
    """The files that LET_GO.json names."""
    found = read_let_go(store, manifest)
    return [f"{prefix_of(manifest)}{path}" for path in found.files] if found else []
