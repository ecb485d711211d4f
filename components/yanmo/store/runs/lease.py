"""A lease: one live run per key.

LEASE.json holds owner, attempt and time to live, and is renewed by compare-and-swap. It also notes for whom
the work is (channel, run) and since when, which decides nothing. A second starter waits
and adopts the result; a run that died on the same machine is recognised by its process id and start
time, so that a rerun after kill -9 starts at once. Of another machine's lease only its silence counts: it is
over when nobody renewed it for its time to live while we watched (half of that, where the store's own clock
says that it is old already). No two machines' clocks are ever compared, so a clock that jumps ends nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from yanmo.common.errors import EnvironmentFault, LeaseLost
from yanmo.common.given_file import json_value
from yanmo.common.waiting import Cancellation, under
from yanmo.store.objects import AlreadyExists, Changed, ObjectStore
from yanmo.store.record import built

log = logging.getLogger(__name__)
TTL_SECONDS = 60.0
_RELEASED = 0.0


def _process_start(pid: int) -> str:
    """Return when a process here started (clock ticks since boot), or '' if it is gone.

    A killed one whose parent does not look after it (the first process of many containers) stays as a zombie.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in ("Z", "X") else fields[19]
    except (OSError, IndexError):
        return ""


def _machine() -> str:
    """Return this boot of this machine and, as process ids mean nothing outside it, the pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        boot = space = ""
    return f"{socket.gethostname()}/{boot}/{space}"


@dataclass(frozen=True, kw_only=True)
class Holder:
    """What LEASE.json says of the run that holds it; one that says nothing is given up."""

    owner: str = ""
    attempt: str = ""
    ttl_seconds: float = TTL_SECONDS
    expires_at: float = _RELEASED
    machine: str = "?"
    """As `_machine` gives it."""
    pid: int = 0
    process_start: str = ""
    since: float = 0.0
    """Unix time."""
    note: dict[str, str] = field(default_factory=dict)
    """For whom the work is: `channel` and `run_id`."""

    @property
    def host(self) -> str:
        return self.machine.partition("/")[0]

    @property
    def is_here(self) -> bool:
        """Return whether the lease is of this machine, so that its process can be looked at."""
        return bool(self.machine == _machine() and self.process_start)

    @property
    def is_given_up(self) -> bool:
        """Return whether the lease was released, or its process is dead."""
        is_dead = self.is_here and _process_start(self.pid) != self.process_start
        return self.expires_at == _RELEASED or is_dead

    def __str__(self) -> str:
        """`run 4f1c2a3e on node-7 since 2026-11-28 21:00 UTC`."""
        if not self.since:
            return "by whom is not known"
        run = f"run {self.note['run_id'][:40]} " if self.note.get("run_id") else ""
        return f"{run}on {self.host} since {datetime.fromtimestamp(self.since, UTC):%Y-%m-%d %H:%M} UTC"


def holder_in(data: bytes) -> Holder:
    """Return who holds the lease in `data`; where it is damaged, and nobody can renew it, nobody."""
    try:
        value = json_value(data)
        known = Holder.__dataclass_fields__.keys()
        found: Holder = built(Holder, {name: value[name] for name in known & value.keys()})
        return found
    except (ValueError, AttributeError):
        return Holder()


class Lease:
    """Held from `acquire` to `release`; renewed by a thread in between."""

    def __init__(
        self,
        store: ObjectStore,
        name: str,
        attempt: str,
        ttl: float = TTL_SECONDS,
        note: Mapping[str, str] | None = None,
    ) -> None:
        self.store, self.name, self.attempt, self.ttl = store, name, attempt, ttl
        self._note, self._since = dict(note or {}), time.time()
        self.owner = uuid.uuid4().hex
        self._version = ""
        self._lost = ""
        self._seen, self._seen_at = "", 0.0
        self._stop, self._cancellation = threading.Event(), Cancellation()
        self._thread: threading.Thread | None = None

    def acquire(self) -> bool:
        """Take the lease; False while another live run holds it."""
        self._since = time.time()
        try:
            self._version = self.store.create(self.name, self._body())
        except AlreadyExists:
            try:
                data, version = self.store.read(self.name)
                holder = holder_in(data)
                if not (holder.is_given_up or self._is_silent(holder, version)):
                    return False
                self._version = self.store.replace(self.name, self._body(), version)
            except (FileNotFoundError, Changed):
                return False  # it moved under us: look again
        self._thread = threading.Thread(target=self._renew, daemon=True, name="lease")
        self._thread.start()
        return True

    def _is_silent(self, holder: Holder, version: str) -> bool:
        """Return whether a lease of another machine was not renewed for so long that its run must be gone."""
        if holder.is_here:
            return False
        now = time.monotonic()
        if version != self._seen:
            self._seen, self._seen_at = version, now
        ttl, watched = holder.ttl_seconds, now - self._seen_at
        return watched > ttl or (watched > ttl / 2 and self._age() > ttl)

    def _age(self) -> float:
        """Return seconds since the last renewal, by the store's clock."""
        info = self.store.stat(self.name)
        return self.store.clock() - info.modified if info else 0.0

    @property
    def is_lost(self) -> bool:
        """Return whether a renewal has found another run's lease; costs nothing, and may be late."""
        return bool(self._lost)

    def check(self) -> None:
        """Raise `LeaseLost` when this run may no longer commit."""
        self._lost = self._lost or self._look()[0]
        if self._lost:
            raise LeaseLost(
                f"{self.store.uri}/{self.name}: {self._lost}; stopped, run the same command again"
            )

    def _look(self) -> tuple[str, str]:
        """Return why the lease is no longer ours, in words ("" while it is), and its version.

        Raises:
            OSError, EnvironmentFault: that cannot be known now.
        """
        try:
            data, version = self.store.read(self.name)
        except FileNotFoundError:
            return "removed by somebody while this run held it", ""
        owner = holder_in(data).owner
        if owner == self.owner:
            return "", version
        return "taken over by another run" if owner else "damaged while this run held it", ""

    def remove(self) -> None:
        """End the lease by removing its object, which no other run can have taken while this one held it."""
        self._end_renewal()
        with contextlib.suppress(LeaseLost):
            self.check()
            self.store.delete(self.name)

    def release(self) -> None:
        """Give the lease back; no error when it was lost or cannot be written (it then expires)."""
        self._end_renewal()
        try:
            self.check()
            self.store.replace(self.name, self._body(is_released=True), self._version)
        except (LeaseLost, Changed):
            pass
        except (OSError, EnvironmentFault) as error:
            # must not hide the result, or the error, of the work itself
            log.warning("could not release %s (%s); it expires in %d s", self.name, error, self.ttl)

    def _end_renewal(self) -> None:
        self._stop.set()
        self._cancellation.set()
        if self._thread:
            self._thread.join()

    def _body(self, *, is_released: bool = False) -> bytes:
        pid = os.getpid()
        holder = Holder(
            owner=self.owner,
            attempt=self.attempt,
            ttl_seconds=self.ttl,
            expires_at=_RELEASED if is_released else time.time() + self.ttl,
            machine=_machine(),
            pid=pid,
            process_start=_process_start(pid),
            since=self._since,
            note=self._note,
        )
        return json.dumps(asdict(holder)).encode()

    def _renew(self) -> None:
        while not self._stop.wait(self.ttl / 3):
            try:
                with under(self._cancellation):
                    self._renew_once()
            except (OSError, EnvironmentFault) as error:  # full disk, network, a rotating secret
                if self._stop.is_set():  # cancelled
                    return
                log.warning("could not renew the lease of %s: %s", self.name, error)
            if self._lost:
                log.error("lease of %s was %s; this run will stop", self.name, self._lost)
                return

    def _renew_once(self) -> None:
        try:
            self._version = self.store.replace(self.name, self._body(), self._version)
        except Changed:
            self._lost, version = self._look()  # the renewal may have happened, and its answer been lost
            self._version = version or self._version


def is_live(data: bytes, age: float) -> bool:
    """Return whether a living run may hold the lease in `data`: for lists, and for what gc leaves alone.

    Args:
        age: seconds since it was last renewed, by the store's clock.
    """
    holder = holder_in(data)
    return not holder.is_given_up and (holder.is_here or age <= holder.ttl_seconds)


def is_held(store: ObjectStore, name: str) -> bool:
    """Return whether a living run may hold the lease of this name now."""
    info = store.stat(name)
    try:
        return info is not None and is_live(store.read(name)[0], store.clock() - info.modified)
    except FileNotFoundError:
        return False


def live_holder(name: str, data: bytes, age: float) -> str:
    """Return the machine of the living run that may hold the lease `name`, `runs/<stage>/<key>/LEASE.json`.

    "" where nobody does, and of a session (store/runs/in_use.py), which makes nothing: its lease is no key's,
    and its attempt is named after itself.

    Args:
        age: as in `is_live`.
    """
    holder = holder_in(data)
    is_session = holder.attempt == name.split("/")[-2][:12]
    return "" if is_session or not is_live(data, age) else holder.host
