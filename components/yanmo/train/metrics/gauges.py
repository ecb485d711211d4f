"""The training on /metrics: from metrics.jsonl, and from what each rank leaves beside its heartbeat.

Nothing here asks the workers anything, so that it answers whatever they do. While no step ends, rates say 0
and the ages grow; all else stays as the last interval had it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from yanmo.common.bar import Bar
from yanmo.stage.exporter import Telemetry
from yanmo.train import job
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import (
    STARTS,
    TRAINING,
    RankFigures,
    Silence,
    doings,
    figures_path,
    heartbeat_path,
    read_figures,
)
from yanmo.train.metrics.declared import DOINGS

log = logging.getLogger(__name__)
_STILL_SECONDS = 5.0
"""How old the last step may be at least before nothing is said to move."""
_FRESH_SECONDS = 0.5
"""How often a scrape reads the workers' files again; they write them once a second."""
_STEPS = 3.0
"""The same in lengths of the last step, where that is more."""
_RATES = ("tokens_per_second", "mfu")
"""What says 0 while no step ends."""
_OF_A_LINE = (
    *("loss", "bits_per_character", "learning_rate", "grad_norm"),
    *("tokens_per_second", "mfu", "seconds_left"),
)
"""Fields of a line that are shown as they are."""
_BY_LAYER = {
    "grad_norm": "layer_grad_norm",
    "update_ratio": "update_to_weight_ratio",
    "active_units": "active_units_ratio",
    "effective_rank": "effective_rank",
    "attention_entropy": "attention_entropy_ratio",
}


class MetricsGauges:
    """Follows one run's files.

    Counters begin at 0 with this process. A start of the workers begins some of theirs again, which
    Prometheus takes for what it is.
    """

    def __init__(self, telemetry: Telemetry, folder: Path) -> None:
        self._telemetry, self._folder = telemetry, folder
        self._lines = job.NewLines(folder / job.METRICS)
        self._lock = threading.Lock()
        self._tokens = 0
        """Most that a line has said, here or in an earlier process."""
        self._events: set[tuple[Any, ...]] = set()
        """Those that were counted: a training that goes back, or on, writes its lines again."""
        self._moves, self._beats = Silence(), dict[int, Silence]()
        self._runs = False
        self._bar, self._steps = Bar("step", 0), 0
        self._began, self._shown = time.monotonic(), 0.0
        self._told: set[str] = set()
        with self._faults_said():
            for line in self._lines.read():
                self._is_new(line)
                self._tokens = max(self._tokens, line.get("tokens", 0))
                telemetry.set("step", line["step"])
        telemetry.source(lambda: self.show(_FRESH_SECONDS))

    def starting(self, options: TrainConfig, place: job.Place | None = None) -> None:
        """Note that the workers are being started: those of node `place` of several."""
        with self._lock:
            self._runs = True
            self._moves, self._beats = Silence(), {}
            self._telemetry.set("ranks", options.ranks)
            self._telemetry.set("steps", options.steps)
            self._bar, self._steps = Bar("step", options.steps), options.steps
            if options.checkpoint_seconds and not (place and place.node):
                self._telemetry.set("checkpoint_interval_seconds", options.checkpoint_seconds)

    def out_of_memory(self) -> None:
        """Note that the workers are about to be started again with a smaller micro batch."""
        self._telemetry.add("restarts", reason="smaller micro batch")
        self._telemetry.add("out_of_memory")

    def ended(self) -> None:
        """Note that the workers have ended: there is nothing that could still move."""
        self.show()
        with self._lock:
            self._runs = False
            self._bar.end()
        self.show()

    def show(self, seconds: float = 0.0) -> None:
        """Take in what is new, and say how old the rest is.

        Args:
            seconds: how long ago that may have been done for nothing to be done now.
        """
        if time.monotonic() - self._shown < seconds:
            return
        self._shown = time.monotonic()
        with self._lock, self._faults_said():
            for line in self._lines.read():
                self._take(line)
            if self._stand_still():
                for name in _RATES:
                    if self._telemetry.value(name):
                        self._telemetry.set(name, 0.0)
            self._look_at_the_checkpoints()

    @contextmanager
    def _faults_said(self) -> Iterator[None]:
        """Inside, nothing ends the training: what cannot be shown is said once."""
        try:
            yield
        except OSError as error:  # a file that is being replaced; a disk that is away
            log.debug("figures of the training cannot be read: %s", error)
        except Exception as error:
            if repr(error) not in self._told:
                self._told.add(repr(error))
                log.warning("figures of the training cannot be shown: %r", error)

    def _take(self, line: dict[str, Any]) -> None:
        if "event" in line:
            if self._is_new(line) and line["event"] in ("skipped", "rewind"):
                self._telemetry.add("skipped_steps" if line["event"] == "skipped" else "rewinds")
            return
        for name in _OF_A_LINE:
            if name in line:  # null where it is not finite, or nothing was trained on
                self._telemetry.replace([name], [] if line[name] is None else [(name, line[name], {})])
        self._telemetry.set("step", line["step"])
        if "seconds_left" in line:  # of an interval
            self._show_bar(line)
        if line.get("tokens", 0) > self._tokens:
            self._telemetry.add("tokens", line["tokens"] - self._tokens)
            self._tokens = line["tokens"]
        if "phase_seconds" in line:
            parts = line["phase_seconds"].items()
            spent = [("interval_seconds", seconds, {"phase": phase}) for phase, seconds in parts]
            self._telemetry.replace(["interval_seconds"], spent)
        for genre, bits in line.get("valid_bits_per_character", {}).items():
            if bits is not None:
                self._telemetry.set("valid_bits_per_character", bits, genre=genre)
        for figure, value in line.get("monitor", {}).items():
            if figure == "output_entropy" and value is not None:
                self._telemetry.set("output_entropy_ratio", value)
            for layer, one in value.items() if figure in _BY_LAYER else ():
                if one is not None:
                    self._telemetry.set(_BY_LAYER[figure], one, layer=str(layer))

    def _show_bar(self, line: dict[str, Any]) -> None:
        figures = [f"{line['tokens_per_second']:,.0f} tokens/s"]
        if line["loss"] is not None:
            figures[:0] = [f"loss {line['loss']:.3f}", f"{line['bits_per_character']:.3f} bits/character"]
        self._bar.show(line["step"], f"{line['step']:,}/{self._steps:,}", line["seconds_left"], *figures)

    def _is_new(self, line: dict[str, Any]) -> bool:
        """Note an event; return whether it was not counted before."""
        event = line.get("event"), line["step"], line.get("first_sample", 0)
        is_new = event not in self._events
        self._events.add(event)
        return is_new

    def _stand_still(self) -> bool:
        """Show each rank's figures and ages; return whether no step ends."""
        telemetry, now = self._telemetry, dict[int, RankFigures]()
        found = doings(self._folder) if self._runs else {}
        for rank in found:
            beat = heartbeat_path(self._folder, rank)
            with suppress(OSError):
                age = self._beats.setdefault(rank, Silence()).look(beat.stat().st_mtime_ns)
                telemetry.set("heartbeat_age_seconds", age, rank=str(rank))
            figures = read_figures(figures_path(beat))
            if figures:
                now[rank] = figures
                self._show_rank(rank, figures)
        if not self._runs:
            telemetry.gone("heartbeat_age_seconds", "last_step_age_seconds", "memory_bytes", "ranks_doing")
            return True
        for doing in DOINGS:
            count = sum(_in_few_words(text) == doing for text in found.values())
            telemetry.set("ranks_doing", count, doing=doing)
        age = self._moves.look(sorted((rank, figures.steps) for rank, figures in now.items()))
        telemetry.set("last_step_age_seconds", age)
        if any(figures.steps for figures in now.values()):
            telemetry.set("step", max(figures.step for figures in now.values()))
        length = _STEPS * max((figures.last_seconds for figures in now.values()), default=0.0)
        return age > max(_STILL_SECONDS, length)

    def _show_rank(self, rank: int, figures: RankFigures) -> None:
        telemetry, label = self._telemetry, str(rank)
        telemetry.set("step_seconds", figures.step_seconds, rank=label)
        telemetry.set("data_wait_seconds", figures.data_seconds, rank=label)
        telemetry.set("allocator_retries", figures.allocator_retries, rank=label)
        if figures.memory_bytes:
            telemetry.set("memory_bytes", figures.memory_bytes, rank=label)
            telemetry.set("memory_peak_bytes", figures.memory_peak_bytes, rank=label)
        if rank == 0:
            telemetry.set("checkpoint_failures", figures.checkpoint_failures, what="write")
            if figures.checkpoint_seconds:
                telemetry.set("checkpoint_write_seconds", figures.checkpoint_seconds)

    def _look_at_the_checkpoints(self) -> None:
        newest = max((self._folder / job.CHECKPOINTS).glob("step-*/manifest.json"), default=None)
        if newest:
            self._telemetry.set("checkpoint_step", int(newest.parent.name.removeprefix("step-")))
        if not self._runs:  # nothing can be lost any more, and none will be written
            self._telemetry.gone("checkpoint_age_seconds")
            return
        age = time.time() - newest.stat().st_mtime if newest else time.monotonic() - self._began
        self._telemetry.set("checkpoint_age_seconds", max(age, 0.0))


def _in_few_words(doing: str) -> str:
    """Return one of DOINGS for what a rank reports."""
    if doing.startswith(TRAINING):
        return "training"
    if "checkpoint" in doing and doing.startswith("waiting"):
        return "waiting"
    if "checkpoint" in doing:
        return "loading" if doing.startswith("loading") else "checkpoint"
    return doing if doing in DOINGS else "starting" if doing in STARTS else "waiting"
