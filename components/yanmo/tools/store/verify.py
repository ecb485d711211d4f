"""`yanmo store verify`: reads every byte again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from yanmo.common.errors import DataError, ExitCode
from yanmo.common.logs import Progress, human_bytes
from yanmo.common.words import plural
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore, Wanted, check_sha256, check_size
from yanmo.store.output import Output, find_output, superseded_name
from yanmo.tools.store.chain import Opener, edges
from yanmo.tools.store.find import find
from yanmo.tools.store.inventory import take
from yanmo.tools.store.options import VerifyOptions
from yanmo.tools.store.pointed import read_undamaged

log = logging.getLogger(__name__)


def run(store: ObjectStore, options: VerifyOptions) -> int:
    faults = Faults()
    outputs = _chosen(store, options.what, options.channel, faults)
    files, total = _read(store, outputs, faults)
    if faults.found:
        log.error("%d fault(s); the first: %s", len(faults.found), faults.found[0])
        return ExitCode.DATA
    print(
        f"whole: {plural(len(outputs), 'output')}, {plural(files, 'file')}, "
        f"{human_bytes(total)} read and compared"
    )
    return ExitCode.DONE


def _read(store: ObjectStore, outputs: Sequence[Output], faults: Faults) -> tuple[int, int]:
    """Read every file; how many files and bytes."""
    found = [(output, output.wanted(entry)) for output in outputs for entry in output.entries()]
    total = sum(wanted.bytes for _, wanted in found)
    progress = Progress(log, "verified", total, unit="B")
    for output, wanted in found:
        if fault := _fault_of(store, wanted):
            faults.note(fault)
        progress.add(wanted.bytes, note=str(output))
    return len(found), total


class Faults:
    """What was found, each printed at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def note(self, fault: str) -> None:
        """Print a fault, once."""
        if fault not in self.found:
            self.found.append(fault)
            print(fault, flush=True)


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
    """Return what `reference` names, once its manifest was compared with it byte by byte."""
    try:
        output = opener.open(reference)
    except DataError as error:
        faults.note(f"{who}: {error}")
        return []
    if output.reference.manifest_sha256 != reference.manifest_sha256:
        # The same content committed again: --force keeps the older manifest, unless that one was lost.
        name = superseded_name(reference.stage, reference.key, reference.manifest_sha256)
        if opener.store.stat(name) is None:
            log.warning(
                "%s: changed since %s referred to it; its content is the same and whole, so nothing is lost",
                f"{opener.store.uri}/{reference.manifest_uri}",
                who,
            )
    return [output]


def _everything(store: ObjectStore, opener: Opener, faults: Faults) -> Iterator[Output]:
    inventory = take(store, leftovers=False)
    named, damaged = read_undamaged(store, inventory.pointers)
    for why in damaged.values():
        faults.note(why)
    for one in named:
        yield from _opened(opener, one.reference, one.by, faults)
    for folder in inventory.keys.values():
        try:
            found = find_output(store, folder.stage, folder.key) if folder.manifest else None
        except DataError as error:
            faults.note(str(error))
            continue
        if found:
            yield found
