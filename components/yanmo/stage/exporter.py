"""What a stage's process measures, held until it is scraped: `Telemetry`.

Served by the supervisor of a stage (endpoint.py), so that a stalled or dead worker stays visible.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType

from yanmo.common import waiting
from yanmo.common.errors import exit_code
from yanmo.common.logs import forget_progress, progress
from yanmo.stage.measured import Measured, printable
from yanmo.stage.metric import Metric
from yanmo.stage.shared_metrics import STATES, declared
from yanmo.store import traffic


class Telemetry(Measured):
    """The metrics of one run of one stage; as a context it also serves them."""

    def __init__(
        self,
        stage: str,
        metrics: Iterable[Metric] = (),
        *,
        run_id: str = "",
        port: int = -1,
        everywhere: bool = False,
        wait_seconds: float = 0.0,
    ) -> None:
        """Args:
        stage: its name.
        metrics: its own, besides those of every stage.
        run_id: id of the pipeline run.
        port: TCP port to serve on; 0 a free one, -1 none. A busy one is replaced by a free one.
        everywhere: on all addresses of this machine, and not on its loopback alone.
        wait_seconds: longest wait at the end for one more scrape, where there were some.
        """
        self.own_metrics = tuple(metrics)
        super().__init__(
            stage, dict(declared(stage, self.own_metrics)).values(), port=port, everywhere=everywhere
        )
        self.recorded: Callable[[], str] | None = None
        """Reads the record of the run that made the output, where that was not this one."""
        self.stage, self.wait_seconds = stage, wait_seconds
        self.source(self._of_every_stage, lasts=True)
        self._info = {"stage": stage, "run_id": run_id}
        self._start = time.time()
        self._begin()

    def _begin(self) -> None:
        self.count_from_zero()
        self.info()
        self.set("start_time_seconds", self._start)
        self.state("starting")
        self.add("tries", room="stage")

    def begin_again(self) -> None:
        """Forget what the stage has counted, before it is tried again; what it waited for stays."""
        forget_progress()
        with self._lock:
            self._sources = [(ask, lasts) for ask, lasts in self._sources if lasts]
            self._values = {m: values for m, values in self._values.items() if m.lasts}
            self._begin()

    def info(self, **labels: str) -> None:
        """Set what is known of the run besides, in the place of what was said before."""
        metric = self._metric("info", "run")
        with self._lock:
            self._info |= labels
            known = {label.name: self._info.get(label.name, "") for label in metric.labels}
            self._values[metric] = {tuple(printable(value) for value in known.values()): 1.0}

    def state(self, now: str) -> None:
        """Say what the stage does now: one of `STATES`."""
        assert now in STATES, now
        with self._lock:
            for state in STATES:
                self.set("state", float(state == now), room="stage", state=state)

    def ended(self, code: int) -> None:
        """Say how the stage has ended; where it paused, that is said already."""
        self.set("exit_code", code, room="stage")
        self.set("end_timestamp_seconds", time.time(), room="stage")
        if not code and self.value("state", room="stage", state="handing_over"):
            self.set("last_success_timestamp_seconds", time.time(), room="stage")
        if not self.value("state", room="stage", state="paused"):
            self.state("failed" if code else "done")

    def ended_by(self, error: BaseException) -> None:
        """The same, of a stage that an error ends."""
        code = error.code if isinstance(error, SystemExit) else exit_code(error)
        self.ended(code if isinstance(code, int) else 1)

    def _of_every_stage(self) -> None:
        for reason in waiting.REASONS:
            self.set("waiting_seconds", waiting.seconds_of(reason), reason=reason)
            self.set("waited_seconds", waiting.total_of(reason), reason=reason)
        for kind, counted in traffic.so_far().items():
            self.set("requests", counted.requests, room="store", kind=kind)
            self.set("retries", counted.retries, room="store", kind=kind)
            self.set("request_seconds", counted.seconds, room="store", kind=kind)
            self.set("bytes", counted.bytes, room="store", kind=kind)
        under_way = progress()
        for one in under_way:
            self.set("work_done", one.done, room="stage", work=one.name)
            self.set("work", one.total, room="stage", work=one.name)
        if any(one.done < one.total for one in under_way):
            self.set("work_age_seconds", min(one.age for one in under_way), room="stage")
        else:
            self.gone("work_age_seconds", room="stage")

    def __enter__(self) -> Telemetry:
        if self.endpoint:
            self.endpoint.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.ended_by(error)
        if self.endpoint:
            if isinstance(error, Exception | None) and not waiting.is_ending():
                self.endpoint.wait_for_scrape(self.wait_seconds)
            self.endpoint.close()
