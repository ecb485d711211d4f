"""What a process is using, recorded in the store for as long as it lives.

    runs/<stage>/<64 digits, drawn>/LEASE.json, INPUTS.json

A key's own lease and list (commit.announce) protect what a run rests on while it makes the key. They do not
reach what is made before the key is known (curate's parts), what is made after it was committed (an
evaluation's baselines), nor the fresh output itself until a pointer names it. A gc without an age took these,
and a run beside `gc --older-than 0s` in a loop began again and again. So a run that makes anything holds a
session as well: to gc it is one more live run, whose list it heeds.

Cost: two small objects written and removed for each run that makes something, and one write for each output
taken up outside of its key's own list, the first time it is. A list is written whole, so another one is begun
after PAGE outputs.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Sequence

from yanmo.common.errors import EnvironmentFault
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.store.runs.in_use import INPUTS, INPUTS_RECORD, Inputs, check_present, lease_name, work_name
from yanmo.store.runs.lease import Lease

log = logging.getLogger(__name__)
PAGE = 128


class Session:
    """Open from the first `use` to `close`; may be used from several threads."""

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
        check_present(self._store, outputs)  # after it was recorded, as in commit.announce
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
