"""What a run of a key rests on, written where gc looks, and whether gc has removed it.

Below `runs/<stage>/<key>` lie its lease, its work in progress and INPUTS.json, which names the outputs that
must stay while it runs.

A key's own lease and list (`announce`) protect what a run rests on while it makes the key. They do not reach
what is made before the key is known (curate's parts), what is made after it was committed (an evaluation's
baselines), nor the fresh output itself until a pointer names it. A gc without an age took these, and a run
beside `gc --older-than 0s` in a loop began again and again. So a run that makes anything holds a `Session` as
well, below `runs/<stage>/<64 digits, drawn>`: to gc it is one more live run, whose list it heeds. Its cost:
two small objects written and removed, and one write for each output taken up outside of its key's own list,
the first time it is.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from yanmo.common.errors import EnvironmentFault, StorageError
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, superseded_name
from yanmo.store.record import Record
from yanmo.store.runs.lease import Lease

log = logging.getLogger(__name__)
LEASE, INPUTS = "LEASE.json", "INPUTS.json"
PAGE = 128
"""Outputs in one list of a session: it is written whole, so another one is begun after them."""
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


class Session:
    """What a process is using besides, from the first `use` to `close`; may be used from several threads."""

    def __init__(self, store: ObjectStore, stage: str) -> None:
        self._store, self._stage = store, stage
        self._pages: list[_Page] = []
        self._lock = threading.Lock()

    def use(self, outputs: Sequence[Output]) -> None:
        """Let gc spare `outputs` and all they rest on until `close`.

        Raises:
            Removed: gc was faster.
        """
        with self._lock:
            outputs = [one for one in outputs if not any(page.names(one) for page in self._pages)]
            for at in range(0, len(outputs), PAGE):
                some = outputs[at : at + PAGE]
                if not self._pages or len(self._pages[-1].used) + len(some) > PAGE:
                    self._pages.append(_Page(self._store, self._stage))
                self._pages[-1].add(some)
        check_present(self._store, outputs)  # after it was recorded, as in `announce`
        with self._lock:
            here = {_name(one) for one in outputs}
            for page in self._pages:
                page.checked |= here & page.used.keys()

    def close(self) -> None:
        """Remove the record; no error where that cannot be done now (the lease then expires)."""
        with self._lock:
            for page in self._pages:
                page.close()
            self._pages.clear()


def _name(output: Output) -> str:
    return f"{output.manifest.stage} {output.reference.manifest_sha256}"


class _Page:
    """One list and its lease."""

    def __init__(self, store: ObjectStore, stage: str) -> None:
        key = secrets.token_hex(32)
        self._store, self._name = store, f"{work_name(stage, key)}/{INPUTS}"
        self._lease = Lease(store, lease_name(stage, key), key[:12])
        self._version = ""
        self.used: dict[str, Reference] = {}
        self.checked: set[str] = set()
        taken = self._lease.acquire()
        assert taken, "nobody else knows this name"

    def names(self, output: Output) -> bool:
        """Return whether it is named here, and was there then: no gc takes it while the lease is held."""
        return _name(output) in self.checked and not self._lease.is_lost

    def add(self, outputs: Sequence[Output]) -> None:
        self.used |= {_name(one): one.reference for one in outputs}
        data = INPUTS_RECORD.to_json(Inputs(self.used))
        if self._version:
            self._version = self._store.replace(self._name, data, self._version)
        else:
            self._version = self._store.create(self._name, data)

    def close(self) -> None:
        try:
            self._store.delete(self._name)
            self._lease.remove()
        except (OSError, EnvironmentFault) as error:
            log.debug("left %s behind: %s", self._name, error)
