"""`yanmo status --serve`: what no pod of a stage can say, on /metrics.

Two threads look at the store, often for what changes and seldom for its size; scrapes are answered from what
they saw last. So a scrape costs the store nothing, and is answered while the store is not. Times and ages
stay true meanwhile, as they are made of times; a figure that would be of then (bits, what runs) is gone.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress

from yanmo.common.errors import ExitCode, UsageError, advice, exit_code
from yanmo.stage.measured import Measured
from yanmo.store.objects import ObjectStore
from yanmo_pipelines.cluster.status.serving.look import Channel, Seen, Watcher, count
from yanmo_pipelines.cluster.status.serving.metrics import METRICS, OUTCOMES, STAGES
from yanmo_pipelines.cluster.status.serving.nights import NIGHT_STATES, Night, Plan, Signs, nights
from yanmo_pipelines.cluster.status.serving.options import ServeOptions

log = logging.getLogger(__name__)
_LATE_LOOKS, _LATE_SECONDS = 3.0, 10.0
"""The store is up no longer when it was last seen so many intervals ago, and so many seconds besides."""
_HEARD_SECONDS = 1.0
"""How late a Ctrl-C is heard at most."""


class Status:
    """What was seen of a store, as metrics."""

    def __init__(
        self,
        plans: Mapping[str, Plan],
        refresh_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self.plans = plans
        self._late = _LATE_LOOKS * refresh_seconds + _LATE_SECONDS
        self._lock = threading.Lock()
        self._seen: Seen | None = None
        self._seen_at = self._clock()
        self._offset, self._started = 0.0, time.time()
        self._answers, self._took = False, 0.0
        self._looks = {"seen": 0, "failed": 0}
        self._counted: tuple[float, dict[str, tuple[int, int]]] | None = None

    def plan(self, plans: Mapping[str, Plan]) -> None:
        """Nights are due so from now on."""
        with self._lock:
            self.plans = plans

    def saw(self, seen: Seen, took: float) -> None:
        """The store was seen."""
        with self._lock:
            self._seen, self._took, self._answers = seen, took, True
            self._seen_at = self._clock()
            self._offset = seen.at + took - time.time()
            self._looks["seen"] += 1

    def failed(self) -> None:
        """The store did not answer, or may not be read."""
        with self._lock:
            self._answers = False
            self._looks["failed"] += 1

    def counted(self, sizes: dict[str, tuple[int, int]]) -> None:
        """The store's objects were counted."""
        with self._lock:
            self._counted = self._clock(), sizes

    def show(self, measured: Measured) -> None:
        """Set all metrics to what is true now."""
        with self._lock:
            age = self._clock() - self._seen_at
            is_up = self._answers and age <= self._late
            now = time.time() + self._offset
            measured.set("store_up", float(is_up), room="status")
            measured.set("look_age_seconds", age, room="status")
            for result, number in self._looks.items():
                measured.set("looks", number, room="status", result=result)
            if self._counted:
                self._show_size(measured, *self._counted)
            seen = self._seen
            channels = seen.channels if seen else {}
            self._show_lasting(measured, channels, now)
            if seen and is_up:
                measured.set("look_seconds", self._took, room="status")
                measured.set("damaged", len(seen.damaged), room="status")
                _show_champions(measured, channels)
                _show_work(measured, seen, now)
            else:
                for metric in METRICS:
                    if metric.still == "gone":
                        measured.gone(metric.name, room=metric.room)
            self._show_nights(measured, seen, now)

    def _show_size(self, measured: Measured, at: float, sizes: dict[str, tuple[int, int]]) -> None:
        for part, (objects, size) in sizes.items():
            measured.set("objects", objects, room="store", part=part)
            measured.set("size_bytes", size, room="store", part=part)
        measured.set("size_age_seconds", self._clock() - at, room="store")

    def _show_lasting(self, measured: Measured, channels: dict[str, Channel], now: float) -> None:
        last = {
            (name, stage): max(at for of, at in channel.ended if of == stage)
            for name, channel in channels.items()
            for stage in dict(channel.ended)
        }
        measured.show_only("last_success_timestamp_seconds", last, room="channel")
        ages = {place: max(now - at, 0.0) for place, at in last.items()}
        measured.show_only("last_success_age_seconds", ages, room="channel")
        since = {(n,): c.champion_since for n, c in channels.items() if c.champion_since is not None}
        measured.show_only("champion_since_timestamp_seconds", since, room="channel")
        changes = {(name,): float(channel.changes) for name, channel in channels.items()}
        measured.show_only("champion_changes", changes, room="channel")

    def due(self) -> tuple[list[str], dict[str, tuple[Plan, list[Night]]], float]:
        """Channels that were seen, each plan with its nights as they stand, and the store's time."""
        with self._lock:
            now = time.time() + self._offset
            seen = self._seen
            found = {n: (plan, self._nights(n, plan, seen, now)) for n, plan in self.plans.items() if seen}
            return list(seen.channels) if seen else [], found, now

    def _show_nights(self, measured: Measured, seen: Seen | None, now: float) -> None:
        counts: dict[tuple[str, str], float] = {}
        stands: dict[tuple[str, str], float] = {}
        for name, plan in self.plans.items():
            found = self._nights(name, plan, seen, now)
            states = [night.state for night in found]
            counts |= {(name, s): float(states.count(s)) for s in NIGHT_STATES}
            if found:
                stands |= {(name, s): float(s == states[-1]) for s in NIGHT_STATES}
                measured.set("due_timestamp_seconds", found[-1].begin, room="night", channel=name)
            after = plan.next_after(now)
            if after is not None:
                measured.set("next_timestamp_seconds", after, room="night", channel=name)
        if counts:
            measured.show_only("nights", counts, room="channel")
        if stands:
            measured.show_only("state", stands, room="night")

    def _nights(self, name: str, plan: Plan, seen: Seen | None, now: float) -> list[Night]:
        channel = seen.channels.get(name) if seen else None
        working = seen.working if seen else ()
        signs = Signs(
            ended=channel.ended if channel else (),
            paused=channel.paused if channel else (),
            works_since=tuple(
                one.since if one.since is not None else now for one in working if one.channel in (name, "")
            ),
        )
        known_until = now - (self._clock() - self._seen_at) if seen else float("-inf")
        first = min(self._started, channel.first) if channel else self._started
        return nights(plan, signs, now, known_until, first)


def _show_champions(measured: Measured, channels: dict[str, Channel]) -> None:
    bits = {(n, genre): value for n, c in channels.items() for genre, value in c.bits.items()}
    measured.show_only("champion_bits_per_character", bits, room="channel")
    means = {(n,): c.mean_bits for n, c in channels.items() if c.mean_bits is not None}
    measured.show_only("champion_mean_bits_per_character", means, room="channel")
    judged = {n: c for n, c in channels.items() if c.verdict}
    said = {(n, o): float(o == c.verdict) for n, c in judged.items() for o in OUTCOMES}
    measured.show_only("verdict", said, room="channel")
    of_runs = {(n, o): float(c.verdicts[o]) for n, c in judged.items() for o in OUTCOMES}
    measured.show_only("verdicts", of_runs, room="channel")


def _show_work(measured: Measured, seen: Seen, now: float) -> None:
    running: dict[tuple[str, ...], list[float | None]] = defaultdict(list)
    for one in seen.working:
        running[one.channel, one.stage].append(one.since)
    measured.show_only("running", {place: float(len(found)) for place, found in running.items()}, room="work")
    oldest = {
        p: max(now - at for at in found if at is not None) for p, found in running.items() if any(found)
    }
    measured.show_only("running_seconds", {p: max(age, 0.0) for p, age in oldest.items()}, room="work")
    for stage in STAGES:
        measured.set("left", seen.left[stage], room="work", stage=stage)
        measured.set("failed", seen.failed[stage], room="work", stage=stage)


def serve(options: ServeOptions, store: ObjectStore, channel: str = "") -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code.

    Raises:
        EnvironmentFault: the port is taken.
    """
    status = Status(options.plans(), options.refresh_seconds)
    everywhere = options.serve_address == "all"
    measured = Measured("status", METRICS, port=options.serve_port, everywhere=everywhere)
    measured.source(lambda: status.show(measured))
    assert measured.endpoint is not None
    measured.endpoint.start(or_another=False)
    stop, broken = threading.Event(), queue.SimpleQueue[BaseException]()
    watcher = Watcher(store, channel)

    def look() -> None:
        began = time.monotonic()
        if options.schedules:
            status.plan(_plans_or(options, status.plans))
        status.saw(watcher.look(), time.monotonic() - began)

    def recount() -> None:
        status.counted(count(store))

    try:
        _again_and_again("look", look, status.failed, options.refresh_seconds, stop, broken)
        if options.count_seconds:
            _again_and_again("count", recount, lambda: None, options.count_seconds, stop, broken)
        where = "http://127.0.0.1" if not everywhere else "all addresses, port "
        log.info("serving /metrics of %s at %s:%d", store.uri, where, measured.port)
        while True:
            # Not without an end: a Ctrl-C just before such a wait would not end it.
            with suppress(queue.Empty):
                raise broken.get(timeout=_HEARD_SECONDS)
    except (SystemExit, KeyboardInterrupt):  # how a service ends
        log.info("asked to stop")
        return ExitCode.DONE
    finally:
        stop.set()
        measured.endpoint.close()


def _plans_or(options: ServeOptions, before: Mapping[str, Plan]) -> Mapping[str, Plan]:
    """What the file of schedules says now; what it said before, while it cannot be read."""
    try:
        return options.plans()
    except UsageError as error:
        log.warning("%s; nights stay due as they were", error)
        return before


def _again_and_again(
    name: str,
    act: Callable[[], None],
    failed: Callable[[], None],
    seconds: float,
    stop: threading.Event,
    broken: queue.SimpleQueue[BaseException],
) -> None:
    """`act` in a thread of its own, every so many seconds; why it fails is logged when that changes."""

    def run() -> None:
        said = ""
        while not stop.is_set():
            try:
                act()
                if said:
                    log.info("%s: the store answers again", name)
                said = ""
            except Exception as error:
                failed()
                if exit_code(error) == ExitCode.BUG:
                    broken.put(error)
                    return
                if advice(error) != said:
                    said = advice(error)
                    log.warning("%s: %s", name, said)
            stop.wait(seconds if not said else min(seconds, 60.0))

    threading.Thread(target=run, name=f"status-{name}", daemon=True).start()
