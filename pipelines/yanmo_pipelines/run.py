"""`yanmo run`: run a compiled pipeline here, and show the result."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from yanmo.common.answers import RESULTS_LATER
from yanmo.common.command_end import as_process, ended, process_started
from yanmo.common.errors import ExitCode
from yanmo.common.logs import VARIABLE, human_bytes, human_seconds, setup
from yanmo.common.names import name_problems
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv, opt
from yanmo.options.shared import ToolOptions, store_flags
from yanmo.store.file_store import FileStore
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import store_of
from yanmo.store.output import PausedOutput
from yanmo.store.runs.in_use import LEASE
from yanmo.store.runs.lease import Lease
from yanmo_pipelines.compile import PIPELINES, find_pipeline
from yanmo_pipelines.parameters import check_stage_options, form_of, pipeline_parameters, read_settings
from yanmo_pipelines.processes import Stopped, TaskFailed, TaskRun

log = logging.getLogger(__name__)
_OF_CLUSTERS = "main"
"""Channel of a form, for which a run on this machine has `dev`."""


@dataclass(frozen=True, kw_only=True)
class PipelineRunOptions(ToolOptions, group="pipeline"):
    """Run a compiled pipeline on this machine, each task as a process, and show the result.

    Every task gets the options of the group store. Exit code: that of the first task that fails.
    """

    pipeline: str = opt(
        "language_model", f"{', '.join(PIPELINES)}, or the path of a compiled YAML", metavar="NAME"
    )
    channel: str = opt(
        "",
        "name of a series of runs, such as dev or nightly: it names their latest outputs; default: dev, chat "
        "for the pipeline chat",
        kind="environment",
        variable="YANMO_CHANNEL",
        often=True,
    )
    set: tuple[str, ...] = opt(
        (),
        "a field of the run form (train_steps=100) or any option of a stage (train.layers=4); may be given "
        "many times",
        metavar="NAME=VALUE",
    )

    def contradictions(self) -> list[str]:
        return name_problems("--channel", self.channel) if self.channel else []


def main(argv: Sequence[str] | None = None, *, started: float | None = None) -> int:
    """Run the pipeline that the command line names; returns the exit code.

    Args:
        started: when the process was started for this, by the monotonic clock; None for now.
    """
    began = time.monotonic() if started is None else started

    def serve() -> int:
        options = load(PipelineRunOptions, default_argv(argv), "yanmo run")
        setup(options.log_level, "run", options.log_format)
        store, of_store = store_of(options), store_flags(options)
        path, stages = find_pipeline(options.pipeline)
        values = pipeline_parameters(path, read_settings(options.set))
        defaults = {name: field.get("defaultValue", "") for name, field in form_of(path).items()}
        values |= {"store": store.uri, "channel": options.channel or _channel_here(defaults)}
        check_stage_options(stages, {**defaults, **values}, of_store)
        from yanmo_pipelines.local_runner import run_pipeline  # after all that may be refused: kfp takes 1 s

        environment = {**_shown_here(stages), VARIABLE: options.log_format}

        try:
            with _kfp_folder(store) as folder:
                tasks = run_pipeline(path, values, folder, of_store, environment)
                _show(store, tasks, time.monotonic() - began)
            return ExitCode.DONE
        except TaskFailed as failure:
            code = failure.task.exit_code or ExitCode.BUG
            log.error("%s; its own message is above. %s", failure, _advice(code))
            return code if code > 0 else 128 - code
        except Stopped as stopped:
            log.warning(
                "%s; finished stages are kept: run the same command again to go on with them, and with a "
                "training that was begun",
                stopped,
            )
            return 128 + stopped.signum

    return ended("run", serve)


def _channel_here(defaults: Mapping[str, Any]) -> str:
    """Return the channel of a run that names none: that of the form, `dev` in place of a cluster's."""
    of_form = str(defaults.get("channel", _OF_CLUSTERS))
    return "dev" if of_form == _OF_CLUSTERS else of_form


def _advice(code: int) -> str:
    """Return what to do after `code`: the same command helps after 75 or a kill only."""
    if code in (ExitCode.USAGE, ExitCode.DATA, ExitCode.ENVIRONMENT):
        return "Change what it names; stages that are finished are kept and not run again"
    if code == ExitCode.BUG:
        return "Please report it with this log; stages that are finished are kept"
    return "Finished stages are kept: run the same command again"


def _shown_here(stages: Any) -> dict[str, str]:
    """Return what tells the stages that their results are printed here, at the end."""
    return {RESULTS_LATER: "1"} if any(stage.name == "promote" for stage in stages) else {}


def _own_folder(store: ObjectStore) -> Path:
    """Return where a run writes what is no output: the store, where it is a folder."""
    return Path(store.root if isinstance(store, FileStore) else "runs")


@contextlib.contextmanager
def _kfp_folder(store: ObjectStore) -> Iterator[Path]:
    """A new folder for KFP's own small files of one run: references and a log, a few kilobytes.

    A lease in it tells `yanmo store gc` that the run lives: a training may last longer than any age.
    """
    name = f"kfp/run-{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:8]}"
    if not isinstance(store, FileStore):
        yield _own_folder(store) / name
        return
    lease = Lease(store, f"{name}/{LEASE}", name.rpartition("-")[2])
    lease.acquire()
    try:
        yield _own_folder(store) / name
    finally:
        lease.release()


def _show(store: Any, tasks: list[TaskRun], seconds: float) -> None:
    """Print what a person wants to see at the end: the verdict, the page, times, size."""
    paused, promoted = _paused(tasks), next((t for t in tasks if t.name == "promote"), None)
    if paused:
        print(f"\n{paused}; run the same command again to go on\n")
    elif promoted is not None:
        _show_verdict(store, promoted)
    _show_cost(tasks, seconds)
    if isinstance(store, FileStore):
        print(f"store   {_shown(store.root)}   {human_bytes(_size(store.root))}")


def _show_cost(tasks: list[TaskRun], seconds: float) -> None:
    """Print what each task took by the wall's clock and of the CPU; the rows add up to the last one."""
    rows = [(task.name, task.seconds, task.cpu_seconds) for task in tasks]
    rows.append(("pipeline itself", seconds - sum(task.seconds for task in tasks), time.process_time()))
    rows.append(("all", seconds, sum(cpu for _, _, cpu in rows)))
    print(f"{'stage':<20}{'seconds':>9}{'CPU s':>9}")
    for name, wall, cpu in rows:
        shown = f"   ({human_seconds(seconds)})" if name == "all" else ""
        print(f"{name:<20}{wall:>9.1f}{cpu:>9.1f}{shown}")


def _paused(tasks: Sequence[TaskRun]) -> PausedOutput | None:
    """Return the first pause that a task handed on."""
    names = [(task, name) for task in tasks if task.outputs for name in task.outputs.artifacts]
    found = (PausedOutput.from_json(task.artifact(name)) for task, name in names)
    return next(filter(None, found), None)


def _show_verdict(store: Any, promoted: TaskRun) -> None:
    from yanmo.store.named import Wanted, find_named  # `--help` does not wait for what reads outputs

    wanted = Wanted(where="promote's verdict", stages=("promote",))
    verdict = find_named(store, promoted.artifact("verdict"), wanted)
    if verdict is None:
        return
    print("\n" + verdict.path("summary.txt").read_text(encoding="utf-8").strip() + "\n")
    if verdict.manifest.run_id != promoted.run_id:
        print(f"Nothing new to judge: this verdict was given at {verdict.manifest.created_at}.\n")
    page = _own_folder(store).absolute() / "report.html"
    temporary = page.with_suffix(".tmp")
    temporary.write_text(promoted.artifact("report"), encoding="utf-8")
    os.replace(temporary, page)
    print(f"report  {_shown(page)}\n")


def _shown(path: Path) -> str:
    """Return the path as a person in this folder would type it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _size(root: Path) -> int:
    return sum(p.lstat().st_size for p in root.rglob("*") if p.is_file())


if __name__ == "__main__":
    as_process(functools.partial(main, started=process_started()))
