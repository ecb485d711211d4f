"""`yanmo store verify`: reads every byte again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from yanmo.common.errors import DataError, ExitCode
from yanmo.common.logs import Progress, human_bytes
from yanmo.nights.checking import fault_of
from yanmo.options.fields import opt, word
from yanmo.options.shared import ToolOptions
from yanmo.store.manifest import FileEntry, Reference, is_sealed
from yanmo.store.objects import ObjectStore, Wanted, check_sha256, check_size
from yanmo.store.output import Output, find_output, manifest_name, superseded_name
from yanmo.tools.command_group import WHAT
from yanmo.tools.store.chain import Opener, edges
from yanmo.tools.store.find import find
from yanmo.tools.store.inventory import take
from yanmo.tools.store.pointed import read_all

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(ToolOptions, group="verify"):
    """Compare every byte that WHAT needs, or of the whole store, with the manifests.

    Follows inputs and parts to the raw files. Names every damaged file, the first one first; one is
    enough for exit code 65. Bytes come from the store itself, past this machine's scratch cache.
    Without WHAT every pointer, history and committed output is checked.
    """

    what: tuple[str, ...] = word(WHAT, ())
    first: bool = opt(False, "stop at the first fault; by default all are listed")


def run(store: ObjectStore, options: VerifyOptions) -> int:
    faults = Faults(options.first)
    try:
        outputs = _chosen(store, options.what, faults)
        files, total = _read(store, outputs, faults)
    except _Enough:
        pass
    if faults.found:
        if faults.is_pointed:
            log.error(
                "pointers or records name outputs that are not there, as after a restore from a copy: `yanmo "
                "store mend --store %s` shows how to bring them back to what is there",
                store.uri,
            )
        log.error("%d fault(s); the first: %s", len(faults.found), faults.found[0])
        return ExitCode.DATA
    print(f"whole: {len(outputs)} outputs, {files} files, {human_bytes(total)} read and compared")
    return ExitCode.DONE


def _read(store: ObjectStore, outputs: Sequence[Output], faults: Faults) -> tuple[int, int]:
    """Read every file; how many files and bytes."""
    entries = [(output, entry) for output in outputs for entry in output.entries()]
    total = sum(entry.bytes for _, entry in entries)
    progress = Progress(log, "verified", total, unit="B")
    for output, entry in entries:
        faults.note_of(_fault_of(store, output, entry))
        progress.add(entry.bytes, note=str(output))
    return len(entries), total


class _Enough(Exception):
    """The first fault was found and no more are wanted."""


class Faults:
    """What was found, each printed at once."""

    def __init__(self, first_only: bool) -> None:
        self.found: list[str] = []
        self.is_pointed = False
        """Whether a file below pointers/ names what is not there."""
        self._first_only = first_only

    def note(self, fault: str) -> None:
        """Print a fault, once."""
        if fault in self.found:
            return
        self.found.append(fault)
        print(fault, flush=True)
        if self._first_only:
            raise _Enough

    def note_of(self, fault: str | None) -> None:
        """`note`, where there is one."""
        if fault is not None:
            self.note(fault)


def _fault_of(store: ObjectStore, output: Output, entry: FileEntry) -> str | None:
    manifest = output.manifest
    name = f"cas/{manifest.stage}/{manifest.key}/{manifest.attempt}/{entry.path}"
    wanted = Wanted(name, entry.bytes, entry.sha256)
    found = store.digest(name)
    try:
        check_size(f"{store.uri}/{name}", wanted, found.bytes if found else None)
        if found:
            check_sha256(f"{store.uri}/{name}", wanted, found.sha256)
    except DataError as error:
        return str(error)
    return None


def _chosen(store: ObjectStore, what: Sequence[str], faults: Faults) -> list[Output]:
    """The outputs to read, sorted by name; manifests that are gone or changed are faults too."""
    opener = Opener(store)
    waiting = [find(store, one) for one in what] if what else list(_everything(store, opener, faults))
    found: dict[str, Output] = {}
    while waiting:
        output = waiting.pop()
        name = f"{output.manifest.stage}/{output.manifest.key}/{output.manifest.attempt}"
        if name not in found:
            found[name] = output
            for edge in edges(output.manifest):
                waiting += _opened(opener, edge.reference, f"{output}: {edge.label}", faults)
    return [found[name] for name in sorted(found)]


def _opened(opener: Opener, reference: Reference, who: str, faults: Faults) -> list[Output]:
    """What `reference` names, once its manifest was compared with it byte by byte."""
    try:
        output = opener.open(reference)
    except DataError as error:
        faults.note(f"{who}: {error}")
        return []
    if output.reference.manifest_sha256 != reference.manifest_sha256:
        # The same content committed again: --force keeps the older manifest, unless that one was lost.
        name = superseded_name(reference.stage, reference.key, reference.manifest_sha256)
        kept = opener.store.digest(name)
        if kept is None or kept.sha256 != reference.manifest_sha256:
            _note_other_manifest(opener.store, output, reference, who, faults)
    return [output]


def _note_other_manifest(
    store: ObjectStore, output: Output, reference: Reference, who: str, faults: Faults
) -> None:
    """The manifest that is pinned is lost; one of equal content is there, whose files are read as well.

    Its seal says that it was committed so. One of an earlier version has none: anybody may have changed it.
    If one that `--force` replaced lies next to it under its own name, somebody put it back.
    """
    name = manifest_name(reference.stage, reference.key)
    found = output.reference.manifest_sha256
    is_older = store.stat(superseded_name(reference.stage, reference.key, found)) is not None
    fault = (
        f"{store.uri}/{name}: changed since {who} referred to it: expected sha256 "
        f"{reference.manifest_sha256[:16]}, found {found[:16]}"
    )
    if is_sealed(store.read(name)[0]) and not is_older:
        log.warning("%s; its content is the same and whole, so nothing is lost", fault)
    else:
        faults.note(fault)


def _everything(store: ObjectStore, opener: Opener, faults: Faults) -> Iterator[Output]:
    inventory = take(store, leftovers=False)
    for info in inventory.pointers:
        try:
            named = list(read_all(store, [info]))
        except DataError as error:
            faults.note(str(error))
            continue
        for one in named:
            opened = _opened(opener, one.reference, one.by, faults)
            faults.is_pointed |= not opened
            yield from opened
    for info in inventory.nights:
        faults.note_of(fault_of(store, info.name))
    for folder in inventory.keys.values():
        try:
            found = find_output(store, folder.stage, folder.key) if folder.manifest else None
        except DataError as error:
            faults.note(str(error))
            continue
        if found:
            yield found
