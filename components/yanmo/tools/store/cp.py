"""`yanmo store cp`: copies an output and all that it rests on."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import shutil
from pathlib import Path

from yanmo.common.errors import DataError, StorageError, UsageError
from yanmo.common.logs import Progress, human_bytes
from yanmo.common.words import plural
from yanmo.store.champion_records import CHAMPION, record_name
from yanmo.store.durable_files import fsync_dir
from yanmo.store.objects import AlreadyExists, ObjectStore, Wanted, Written
from yanmo.store.opening import store_of
from yanmo.store.output import Output, find_output, manifest_name, open_reference, superseded_name
from yanmo.store.pointers import move_pointer, pointer_name
from yanmo.store.runs.in_use import announce, lease_name
from yanmo.store.runs.lease import Lease
from yanmo.tools.store.chain import Opener, edges
from yanmo.tools.store.find import find
from yanmo.tools.store.options import CpOptions

log = logging.getLogger(__name__)


def run(store: ObjectStore, options: CpOptions) -> int:
    channel, _, name = options.pointer.partition("/")
    if options.pointer:
        pointer_name(channel, name)
    endpoint = options.to_endpoint or options.endpoint
    target = store_of(dataclasses.replace(options, endpoint=endpoint), options.to)
    if target.uri == store.uri:
        raise UsageError(f"--to {options.to}: is the store to copy from; give another one")
    outputs = [find(store, one, channel=options.channel) for one in options.what]
    chain = Opener(store).chain(outputs)
    copy = _Copy(target, sum(entry.bytes for output in chain for entry in output.manifest.files))
    for output in chain:
        copy.output(output)
    if options.pointer:
        move_pointer(target, channel, name, outputs[0].reference)
        if name == CHAMPION and target.stat(record_name(channel, 1)) is not None:
            log.warning(
                "channel %r of %s has a history of champions, and its next run sets the pointer back. "
                "To make this model champion: yanmo promote set train/%s --store %s --channel %s --why WHY",
                *(channel, target.uri, outputs[0].manifest.key, target.uri, channel),
            )
    print(
        f"{plural(len(chain), 'output')} at {target.uri}: {plural(copy.sent_files, 'file')}, "
        f"{human_bytes(copy.sent_bytes)} sent; {copy.present} outputs were there"
    )
    for output in outputs:
        print(f"{output.manifest.stage}/{output.manifest.key}")
    return 0


class _Copy:
    """One run of cp: what it has sent."""

    def __init__(self, target: ObjectStore, total: int) -> None:
        self.target = target
        self.sent_files = self.sent_bytes = self.present = 0
        self._progress = Progress(log, "copied", total, unit="B")

    def output(self, output: Output) -> None:
        """Copy one output whose inputs are there."""
        manifest = output.manifest
        if self._is_there(output):
            self.present += 1
            self._progress.add(sum(entry.bytes for entry in manifest.files))
            return
        lease = Lease(self.target, lease_name(manifest.stage, manifest.key), manifest.attempt)
        if not lease.acquire():
            raise StorageError(f"{self.target.uri}: a run is making {output} there now; run this again later")
        try:
            inputs = {e.label: open_reference(self.target, e.reference) for e in edges(manifest)}
            announce(self.target, manifest.stage, manifest.key, inputs)
            for entry in output.entries():
                self._file(output, output.wanted(entry))
            lease.check()
            self._commit(output)
        finally:
            lease.release()

    def _is_there(self, output: Output) -> bool:
        """Return whether the target has this content of the key, whole; add a manifest that is pinned."""
        manifest = output.manifest
        if find_output(self.target, manifest.stage, manifest.key) is None:
            return False
        try:
            found = open_reference(self.target, output.reference)
        except DataError:
            return False  # the target has other content under this key; ours goes next to it
        if found.missing():
            return False
        if found.reference.manifest_sha256 != output.reference.manifest_sha256:
            self._keep_beside(output)
        return True

    def _file(self, output: Output, wanted: Wanted) -> None:
        manifest = output.manifest
        prefix = f"cas/{manifest.stage}/{manifest.key}/{manifest.attempt}"
        path, whole = wanted.name.removeprefix(f"{prefix}/"), Written(wanted.bytes, wanted.sha256)
        if self.target.stat(wanted.name) is None or self.target.digest(wanted.name) != whole:
            source = output.store.fetch([wanted])[0]
            target = self.target.writable(prefix) / path
            _copy_file(source, target)
            output.store.release([source])
            arrived = self.target.publish(prefix, [path])[0]
            if arrived != whole:
                raise StorageError(f"{self.target.uri}/{wanted.name}: changed on its way; run this again")
            self.sent_files += 1
            self.sent_bytes += wanted.bytes
        self._progress.add(wanted.bytes, note=str(output))

    def _commit(self, output: Output) -> None:
        manifest = output.manifest
        try:
            self.target.create(manifest_name(manifest.stage, manifest.key), _manifest_bytes(output))
        except AlreadyExists:
            found = find_output(self.target, manifest.stage, manifest.key)
            if found is None or found.reference.manifest_sha256 != output.reference.manifest_sha256:
                self._keep_beside(output)
        self.target.settle(f"cas/{manifest.stage}/{manifest.key}/{manifest.attempt}")

    def _keep_beside(self, output: Output) -> None:
        """Write the manifest next to that of the target's own output of the key, where references find it."""
        manifest, reference = output.manifest, output.reference
        with contextlib.suppress(AlreadyExists):
            name = superseded_name(manifest.stage, manifest.key, reference.manifest_sha256)
            self.target.create(name, _manifest_bytes(output))


def _manifest_bytes(output: Output) -> bytes:
    """The manifest as it is stored, byte by byte: references pin its sha256."""
    stage, key, sha256 = output.manifest.stage, output.manifest.key, output.reference.manifest_sha256
    for name in (manifest_name(stage, key), superseded_name(stage, key, sha256)):
        with contextlib.suppress(FileNotFoundError):
            data, _ = output.store.read(name)
            if hashlib.sha256(data).hexdigest() == sha256:
                return data
    raise StorageError(f"{output}: its manifest changed while it was copied; run this again")


def _copy_file(source: Path, target: Path) -> None:
    """A durable copy that is never half there under its name: it may be all that a killed run leaves."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".tmp-{target.name[:200]}")
    try:
        shutil.copyfile(source, temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
        fsync_dir(target.parent)
    finally:
        temporary.unlink(missing_ok=True)
