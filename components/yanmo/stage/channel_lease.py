"""One run of a stage a channel at a time, where its runs ask for that: nights by KFP, by CronJobs, by hand.

    runs/<stage>/<sha256 of the channel>/LEASE.json

A key's lease keeps two makers of one output apart. Two nights of a channel may make different outputs (the
data grew, an option changed), on the same GPUs, and each would judge its model by the same champion. So a run
that asks for it holds a lease of the channel besides, taken before that of its key. Like that of a session it
is nobody's work: gc and `yanmo status` pass over it (store/runs/lease.py, `live_holder`).

Cost: one small object written, renewed every 20 s and removed. A run that was killed leaves it behind; the
next one takes it over when nobody has renewed it for a minute.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from yanmo.common import waiting
from yanmo.common.errors import StorageError
from yanmo.common.logs import human_seconds
from yanmo.store.objects import ObjectStore
from yanmo.store.runs.in_use import lease_name
from yanmo.store.runs.lease import TTL_SECONDS, Lease, holder_in

log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0


class Busy(StorageError):
    """Another run of the channel is at work; says which."""


@contextmanager
def alone_in(
    store: ObjectStore,
    stage: str,
    channel: str,
    run_id: str = "",
    *,
    waits: bool,
    ttl: float = TTL_SECONDS,
) -> Iterator[None]:
    """Hold the lease of `channel` for a run of `stage`.

    Args:
        waits: wait for the other run, to its end or for --wait-seconds; else end as soon as it is known to
            live, after 20 s on another machine.
        ttl: seconds without a renewal after which the run that holds it counts as gone.

    Raises:
        Busy: another run holds it.
    """
    key = hashlib.sha256(f"channel {channel}".encode()).hexdigest()
    note = {"channel": channel, "run_id": run_id}
    lease = Lease(store, lease_name(stage, key), key[:12], ttl, note)
    _take(lease, f"channel {channel}", waits)
    try:
        yield
    finally:
        lease.remove()


def _take(lease: Lease, what: str, waits: bool) -> None:
    seen: str | None = None
    with waiting.Wait("lease") as wait:
        while not lease.acquire():
            version, who = _held_by(lease)
            if version and seen is None:
                seen = version
                log.info("%s: another run has a training at work (%s); looking whether it lives", what, who)
            elif version and version != seen and not waits:
                raise Busy(
                    f"another training of {what} is at work ({who}); this run ends without one; run it "
                    "again later"
                )
            _check_patience(wait, what, who)
            time.sleep(min(_LOOK_SECONDS, lease.ttl / 10))


def _check_patience(wait: waiting.Wait, what: str, who: str) -> None:
    waited, most = wait.because(f"it trains for {what} ({who})"), waiting.longest_wait()
    if most and waited > most:
        raise StorageError(
            f"another training of {what} has been at work ({who}) for the {human_seconds(waited)} that this "
            "one waited (--wait-seconds); run the same command again, or stop the other one"
        )


def _held_by(lease: Lease) -> tuple[str, str]:
    """Return the version of the lease as another run holds it, and who that is; "" where it has just gone."""
    try:
        data, version = lease.store.read(lease.name)
    except FileNotFoundError:
        return "", ""
    return version, str(holder_in(data))
