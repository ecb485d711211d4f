"""`yanmo store verify`: reads every byte again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from yanmo.common.errors import DataError, ExitCode
from yanmo.common.logs import Progress, human_bytes, plural
from yanmo.nights.checking import fault_of
from yanmo.store.let_go import prefix_of, read_let_go
from yanmo.store.manifest import Reference, is_sealed
from yanmo.store.objects import ObjectStore, Wanted, check_sha256, check_size
from yanmo.store.output import Output, find_output, manifest_name, superseded_name
from yanmo.tools.store.chain import Opener, edges
from yanmo.tools.store.find import find
from yanmo.tools.store.inventory import take
from yanmo.tools.store.options import VerifyOptions
from yanmo.tools.store.pointed import read_all

log = logging.getLogger(__name__)


def run(store: ObjectStore, options: VerifyOptions) -> int:
    faults = Faults(options.first)
    try:
        outputs = _chosen(store, options.what, options.channel, faults)
        files, total, let_go = _read(store, outputs, faults)
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
    print(
        f"whole: {plural(len(outputs), 'output')}, {plural(files, 'file')}, "
        f"{human_bytes(total)} read and compared"
        + (f"; of {let_go} the data was let go (gc --former-data)" if let_go else "")
    )
    return ExitCode.DONE


def _read(store: ObjectStore, outputs: Sequence[Output], faults: Faults) -> tuple[int, int, int]:
    """Read every file; how many files and bytes, and of how many outputs the data was let go."""
    found = [(output, wanted) for output in outputs for wanted in _wanted(store, output, faults)]
    total = sum(wanted.bytes for _, wanted in found)
    progress = Progress(log, "verified", total, unit="B")
    for output, wanted in found:
        fault = _fault_of(store, wanted)
        if fault is None or not _was_let_go_since(store, output, wanted):
            faults.note_of(fault)
        progress.add(wanted.bytes, note=str(output))
    return len(found), total, sum(output.is_let_go() for output in outputs)


def _wanted(store: ObjectStore, output: Output, faults: Faults) -> Iterator[Wanted]:
    """What is to be there of an output: its files, and what stands for those that were let go."""
    try:
        gone = _let_go(store, output)
    except DataError as error:
        faults.note(str(error))
        return
    for wanted, entry in ((output.wanted(entry), entry) for entry in output.entries()):
        if entry.path not in gone or store.stat(wanted.name) is not None:  # gc may have been killed
            yield wanted
    yield from (table for table in gone.values() if table)


def _was_let_go_since(store: ObjectStore, output: Output, wanted: Wanted) -> bool:
    """Whether gc, which may run beside this, let go of a file since it was listed here."""
    is_gone = store.stat(wanted.name) is None
    return is_gone and wanted.name.removeprefix(prefix_of(output.manifest)) in _let_go(store, output)


def _let_go(store: ObjectStore, output: Output) -> dict[str, Wanted | None]:
    found = read_let_go(store, output.manifest)
    return dict(found.files) if found else {}


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


def _fault_of(store: ObjectStore, wanted: Wanted) -> str | None:
    where, found = f"{store.uri}/{wanted.name}", store.digest(wanted.name)
    try:
        check_size(where, wanted, found.bytes if found else None)
        if found:
            check_sha256(where, wanted, found.sha256)
    except DataError as error:
        return str(error)
    return None


def _chosen(store: ObjectStore, what: Sequence[str], channel: str, faults: Faults) -> list[Output]:
    """The outputs to read, sorted by name; manifests that are gone or changed are faults too."""
    opener = Opener(store)
    waiting = (
        [find(store, one, channel=channel) for one in what]
        if what
        else list(_everything(store, opener, faults))
    )
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
