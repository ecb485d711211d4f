"""What a run of a key rests on, written where gc looks, and whether gc has removed it.

Below `runs/<stage>/<key>` lie its lease, its work in progress and INPUTS.json, which names the outputs that
must stay while it runs.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass

from yanmo.common.errors import StorageError
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, superseded_name
from yanmo.store.record import Record

LEASE, INPUTS = "LEASE.json", "INPUTS.json"
_GC_SECONDS = 20.0
"""How long a run waits for a gc that has set aside what it needs; a gc that was killed decides nothing."""


@dataclass(frozen=True)
class Inputs:
    """What INPUTS.json holds."""

    inputs: dict[str, Reference]


INPUTS_RECORD = Record("yanmo.inputs/1", Inputs)


class Removed(StorageError):
    """gc removed an output since it was opened: nothing referred to it."""

    def __init__(self, message: str, which: Reference) -> None:
        super().__init__(message)
        self.which = which


def work_name(stage: str, key: str) -> str:
    """Return the folder of a key's work in progress (checkpoints, LEASE.json)."""
    return f"runs/{stage}/{key}"


def lease_name(stage: str, key: str) -> str:
    """Return the name of the lease of a key."""
    return f"{work_name(stage, key)}/{LEASE}"


def announce(store: ObjectStore, stage: str, key: str, outputs: dict[str, Output]) -> None:
    """Write into INPUTS.json what the run of a key rests on.

    gc sets a manifest aside, then reads these files and the pointers, and only then removes anything; a run
    writes first and looks for the manifests afterwards. So gc sees the file, or the run that one is gone.

    Two processes may write at once, as what follows a committed output needs no lease (a pipeline evaluates
    challenger and champion side by side, and they may be one model). The last one's list stays; what the
    other uses is in its session.

    Raises:
        StorageError: one of `outputs` was removed since it was opened.
    """
    if not outputs:
        return
    pinned = {name: output.reference for name, output in sorted(outputs.items())}
    INPUTS_RECORD.write(store, f"{work_name(stage, key)}/{INPUTS}", Inputs(pinned))
    check_present(store, outputs.values())


def check_present(store: ObjectStore, outputs: Iterable[Output]) -> None:
    """Raise Removed when gc has removed one of `outputs` since it was opened.

    Waits for one that gc has set aside and not yet removed: gc looks once more who needs it, under the lease
    of its key, and the caller has announced that before.
    """
    for output in outputs:
        pinned = output.reference
        set_aside = superseded_name(pinned.stage, pinned.key, pinned.manifest_sha256)
        end = time.monotonic() + _GC_SECONDS
        while not _is_present(store, pinned):
            if store.stat(set_aside) is None and not _is_present(store, pinned):  # nor put back meanwhile
                raise Removed(
                    f"{store.uri}/{pinned.manifest_uri}: removed by `yanmo store gc` while this ran, "
                    "as nothing referred to it; run the same command again",
                    pinned,
                )
            if time.monotonic() > end:
                raise Removed(
                    f"{store.uri}/{pinned.manifest_uri}: set aside by a `yanmo store gc` that goes on or was "
                    "killed; run `yanmo store gc --delete`, which puts back what is needed, then "
                    "run the same command again",
                    pinned,
                )
            time.sleep(0.2)


def _is_present(store: ObjectStore, pinned: Reference) -> bool:
    """Return whether the opened manifest is there, in its place or as one that `--force` replaced."""
    try:
        data, _ = store.read(pinned.manifest_uri)
    except FileNotFoundError:
        return False  # removed, or set aside by a gc that will look once more who needs it
    if hashlib.sha256(data).hexdigest() == pinned.manifest_sha256:
        return True
    return store.stat(superseded_name(pinned.stage, pinned.key, pinned.manifest_sha256)) is not None
