"""`yanmo train`: checks, starts the ranks, watches them, commits the model.

The supervisor never imports torch: it stays small and answers /metrics and signals whatever the workers do.
What only some trainings have, such as other nodes, twins and sinks, is imported where it is asked for.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from yanmo.common.errors import EnvironmentFault, UsageError
from yanmo.formats.token_cache import TokenCache
from yanmo.options.fields import by_kind
from yanmo.stage.exporter import Telemetry
from yanmo.stage.nvml import power_limit
from yanmo.stage.stage_run import Ended, Prepared, Skip
from yanmo.store.commit import Result
from yanmo.store.output import Output, Pause
from yanmo.store.runs.failure_card import Details, attach, details_of
from yanmo.train import job
from yanmo.train.backends.hardware import memory_kills, this_machine
from yanmo.train.checkpoints.uploader import Uploader
from yanmo.train.config import STAGE, TrainConfig
from yanmo.train.job import Status, WorkerJob, forget_earlier_start
from yanmo.train.memory.estimate import micro_batches
from yanmo.train.memory.fitting import checked, halve_micro_batch, largest_micro_batch
from yanmo.train.metrics.gauges import MetricsGauges
from yanmo.train.supervision.committed import committed
from yanmo.train.supervision.ending import describe, raise_failure
from yanmo.train.supervision.machine_check import Look, TrainRun, check_machine
from yanmo.train.supervision.ranks import Unbegun, full_ranks, run_ranks
from yanmo.train.supervision.unfinished import begins, ends, pauses
from yanmo.train.time_window import Hours, TimeWindow, stop_file

if TYPE_CHECKING:
    from yanmo.train.nodes.leader import Leader
    from yanmo.train.sinks.process import Sinks

_SHOWN_SECONDS = 1.0
"""How often the figures of the workers are read while nobody scrapes: as often as they write them."""


def prepare(run: TrainRun) -> Prepared[None]:
    """With `--benchmark`, run the benchmark instead of a training; adds nothing to the key.

    Raises:
        Skip: the benchmark is done.
        UsageError: torchrun has started it.
    """
    if os.environ.get("TORCHELASTIC_RUN_ID"):
        raise UsageError(
            "started by torchrun: run `yanmo train` itself, once on each node, with --nnodes and --ranks; "
            "it starts its ranks itself (docs/how-to/several-nodes.md)"
        )
    if run.options.benchmark:
        from yanmo.train.supervision.benchmark import as_flags, best_settings

        raise Skip(f"--benchmark trains no model; the fastest settings: {as_flags(best_settings(run))}")
    return Prepared(None)


def assist(run: TrainRun) -> Ended | None:
    """Train as a node other than 0 until node 0 is done; see `yanmo.train.nodes.follower.follow`."""
    from yanmo.train.nodes.follower import follow

    return follow(run)


def work(run: TrainRun, look: Look = this_machine) -> Result:
    """Train, and put the model into the attempt.

    Args:
        look: returns what this machine has.
    """
    options: TrainConfig = run.options
    cache = TokenCache.open(run.input("token_cache"))
    folder = run.work_folder.path
    folder.mkdir(parents=True, exist_ok=True)
    uploader = Uploader(run.work_folder, run.attempt.lease, run.telemetry)
    if (run.telemetry.value("tries", room="stage") or 1) > 1:
        run.telemetry.add("restarts", reason="another try")
    hours, parts = Hours(options), dict[str, Output]()
    if not hours.is_over:
        begins(run, uploader.label)

    @functools.cache
    def task() -> WorkerJob:
        check_machine(run, look)
        return _task(run, cache, folder)

    with _leading(run) as leader:
        try:
            if not (folder / job.EXPORT).exists():
                first = task()
                uploader.restore()
                if leader:
                    leader.forget_parts()
                with _sinks(run, first) as sinks:
                    gauges = MetricsGauges(run.telemetry, folder)
                    pause = train_or_pause(first, hours, gauges, uploader, leader)
                    if sinks:
                        sinks.is_done = pause is None
                if pause:
                    uploader.save()
                    pauses(run, uploader.label, pause)
                    if leader:
                        leader.pauses(pause)
                    return Result(counts={}, pause=pause)
        except Exception:
            ends(run, uploader.label)
            raise
        if options.twins:
            from yanmo.train.supervision.seed_twins import seed_noise

            parts = seed_noise(run, task, functools.partial(_train_twin, hours, leader))
    return dataclasses.replace(committed(run, cache, folder), references=parts)


def train_or_pause(
    task: WorkerJob,
    hours: Hours,
    gauges: MetricsGauges,
    uploader: Uploader,
    others: Leader | None = None,
) -> Pause | None:
    """Run the workers to the end; return where and why they paused, if they did.

    Args:
        others: tells the other nodes of several what to train.

    Raises:
        Exception: the error that ended a worker, so that the stage has its exit code.
    """
    with stop_file(task.folder / job.STOP) as stopping:
        while True:
            forget_earlier_start(task.folder)
            window = hours.current()
            if stopping or window.ends_at <= time.time():
                return _pause(task, _saved_step(task.folder), window, stopping)
            try:
                statuses = _one_start(_started(task, window), hours, gauges, uploader, stopping, others)
            except Unbegun:
                return _pause(task, _saved_step(task.folder), window, stopping)
            except Exception as error:
                _say_what_is_kept(error, uploader)
                raise
            if statuses is None:
                gauges.out_of_memory()
                continue
            states = {status.state for status in statuses}
            if states == {"done"}:
                return None
            return _pause(task, max(status.step for status in statuses), window, stopping)


def _say_what_is_kept(error: Exception, uploader: Uploader) -> None:
    """Put the last good checkpoint onto the card of a failure."""
    details = details_of(error) or Details()
    kept = uploader.newest()
    if kept is not None:
        details = dataclasses.replace(details, checkpoint=kept.shown, saved_at=kept.saved_at)
    attach(error, dataclasses.replace(details, is_resumable=True))


def _pause(task: WorkerJob, step: int, window: TimeWindow, stopping: list[float]) -> Pause:
    """Return where and why it paused. Where somebody signals a rank and not the stage, nothing was
    asked here and no window is over."""
    is_planned = bool(window.reason) and not stopping
    whom = "" if stopping else " to another node or a rank" if task.options.nnodes > 1 else " to a rank"
    why = window.reason if is_planned else f"asked to stop by a signal{whom}"
    return Pause(where=f"step {step} of {task.options.steps}", why=why, is_planned=is_planned)


def _saved_step(folder: Path) -> int:
    """Return the step of the newest checkpoint, 0 where there is none; whether it is whole, the next start
    sees."""
    names = [path.name.removeprefix("step-") for path in (folder / job.CHECKPOINTS).glob("step-*")]
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _started(task: WorkerJob, window: TimeWindow) -> WorkerJob:
    """Return the job with its end, and with no larger a micro batch than has fitted."""
    options, note = task.options, ""
    most, why = largest_micro_batch(task.folder)
    if most and options.micro_rows > most:
        rows = next(n for n in micro_batches(options) if n <= most)  # it may be from a run with other --ranks
        options, note = dataclasses.replace(options, micro_batch=rows), why
    ends_at = None if math.isinf(window.ends_at) else window.ends_at
    return dataclasses.replace(task, options=options, ends_at=ends_at, reason=window.reason, note=note)


def _one_start(
    task: WorkerJob,
    hours: Hours,
    gauges: MetricsGauges,
    uploader: Uploader,
    stopping: list[float],
    others: Leader | None = None,
) -> list[Status] | None:
    """Return how the ranks ended; None when the micro batch was halved and they have to be started again.

    Raises:
        Exception: what ended the ranks.
    """
    killed_before = memory_kills()

    def look() -> None:
        limit(task.options.watts(is_night=hours.is_night))
        gauges.show(_SHOWN_SECONDS)
        uploader.check()

    gpus = task.options.ranks if task.options.device == "cuda" else 0  # others' cards stay as they are
    with power_limit(count=gpus) as limit, uploader:
        task = others.begin(task, uploader.work_name) if others else task
        ending = run_ranks(task, gauges, stopping, look)
    full = full_ranks(ending, was_killed=memory_kills() > killed_before)
    if full:  # also while stopping: a micro batch that did not fit must not be tried again
        try:
            halve_micro_batch(task, full[0])
        except EnvironmentFault as error:
            raise describe(ending, error, full[0].rank, "", "lost it") from None
        return None
    raise_failure(ending)
    return list(ending.statuses)


@contextmanager
def alone(run: TrainRun) -> Iterator[None]:
    """Hold the lease of the channel, where `--when-busy` asks for it: two nights then never train at once.

    Raises:
        Busy: another training of the channel is at work.
    """
    options = run.options
    if options.when_busy == "train":
        yield
        return
    from yanmo.stage.channel_lease import Busy, alone_in

    waits = options.when_busy == "wait"
    try:
        with alone_in(run.store, run.stage.name, options.channel, options.run_id, waits=waits):
            yield
    except Busy as reason:
        if options.nnodes > 1:
            from yanmo.train.nodes.leader import tell_busy

            tell_busy(run, str(reason))
        raise


def _leading(run: TrainRun) -> AbstractContextManager[Leader | None]:
    """While inside, the other nodes are told what to train; None with one node."""
    if run.options.nnodes == 1:
        return nullcontext()
    from yanmo.train.nodes.leader import leading

    return leading(run)


def _sinks(run: TrainRun, task: WorkerJob) -> AbstractContextManager[Sinks | None]:
    """Return the places where the figures of the training go besides; None without any.

    Its options are shown there as config.yaml holds them: those of its surroundings may hold a password.
    """
    options = task.options
    if not options.sinks:
        return nullcontext()
    from yanmo.train.sinks.process import Sinks

    shown = by_kind(options, "semantic", "execution")
    about = {"key": run.key, "run_id": options.run_id, "channel": options.channel, "options": shown}
    log_options = {"log_level": options.log_level, "log_format": options.log_format}
    return Sinks(options.sinks, task.folder, about, log_options)


def _task(run: TrainRun, cache: TokenCache, folder: Path) -> WorkerJob:
    """Return the job of the workers, checked."""
    model = run.inputs["model"]
    options = checked(run.options, cache, model, folder)
    return WorkerJob(
        options=options,
        store=run.store.uri,
        token_cache=run.input("token_cache").reference,
        model=model.reference if model else None,
        folder=folder,
    )


def _train_twin(hours: Hours, others: Leader | None, task: WorkerJob, uploader: Uploader) -> Pause | None:
    """`train_or_pause` without metrics on /metrics, which belong to the model."""
    gauges = MetricsGauges(Telemetry(STAGE.name, STAGE.metrics), task.folder)
    return train_or_pause(task, hours, gauges, uploader, others)
