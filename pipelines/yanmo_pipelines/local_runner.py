"""Run a compiled pipeline on this machine: KFP's own orchestrator, each task one process.

KFP's SubprocessRunner refuses container components, so its task handler is replaced while a pipeline
runs. That rests on one private name, `kfp.local.subprocess_task_handler.SubprocessTaskHandler`, looked
up at call time; kfp is pinned and tests/pipelines/test_local_runner.py says what broke when it changes.
Cost: 6 ms a task over the process itself. Alternatives: DockerRunner (needs a daemon), an own
orchestrator (would run another pipeline than the cluster does).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from kfp import components, local
from kfp.local import status
from kfp.local import subprocess_task_handler as sth

from yanmo.common.errors import EnvironmentFault, UsageError, in_words
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo_pipelines.processes import Processes, TaskFailed, TaskRun, value_of
from yanmo_pipelines.resources import IN_PODS, METRICS_PORT, RAY_VARIABLES


@dataclass
class _Session:
    """The state of the one run of this process."""

    tasks: list[TaskRun] = field(default_factory=list)
    processes: Processes = field(default_factory=Processes)
    of_store: Sequence[str] = ()
    """Flags that every command with a --store gets as well."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that every command gets as well."""


_session = _Session()


class ProcessHandler(sth.SubprocessTaskHandler):  # type: ignore[misc]
    """Runs a container command as a process of this environment and keeps its exit code."""

    def __init__(
        self,
        image: str,
        full_command: list[str],
        pipeline_root: str,
        runner: Any,
        env_vars: dict[str, str] | None = None,
    ) -> None:
        self.image, self.pipeline_root, self.runner = image, pipeline_root, runner
        self.full_command, self.env_vars = full_command, env_vars or {}

    def run(self) -> status.Status:
        """Run the task to its end.

        Raises:
            TaskFailed: at once, without KFP's retries: every exit code that a local retry could mend
                is one that a person should see first.
            Stopped: a signal came.
        """
        task = TaskRun(_task_name(self.full_command), self.full_command)
        task.outputs = ExecutorOutputs.parse(value_of(self.full_command, "--executor-input"))
        _session.processes.check()
        _session.tasks.append(task)
        started = time.monotonic()
        environment = {**os.environ, **_session.environment, **_without_pods_own(self.env_vars)}
        task.exit_code, task.cpu_seconds = _session.processes.run(
            _local_command(self.full_command), environment
        )
        task.seconds = time.monotonic() - started
        if task.exit_code != 0:
            raise TaskFailed(task)
        return status.Status.SUCCESS


def _without_pods_own(variables: Mapping[str, str]) -> dict[str, str]:
    """Return a pod's variables for processes here: who sits here waits for nothing, and alone, and has a Ray
    cluster of their own."""
    return {name: value for name, value in variables.items() if name not in {**IN_PODS, **RAY_VARIABLES}}


def _local_command(command: list[str]) -> list[str]:
    """Return the command with this Python for the image's, and a free port for the pod's."""
    program = sys.executable if command[0] in ("python", "python3") else command[0]
    pod_port = f"--metrics-port={METRICS_PORT}"
    has_store = any(arg.startswith("--store=") for arg in command)
    arguments = ["--metrics-port=0" if arg == pod_port else arg for arg in command[1:]]
    return [program, *arguments, *(_session.of_store if has_store else ())]


def _task_name(command: list[str]) -> str:
    """Return the folder that KFP made for the task's outputs is named after the task."""
    outputs = ExecutorOutputs.parse(value_of(command, "--executor-input"))
    return Path(outputs.file).parent.name if outputs else " ".join(command[:3])


def run_pipeline(
    yaml_path: Path,
    parameters: dict[str, Any],
    root: Path,
    of_store: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> list[TaskRun]:
    """Run a compiled pipeline and return its tasks in the order in which they ran.

    Args:
        yaml_path: a compiled pipeline.
        parameters: values for its parameters; defaults for the others.
        root: folder for KFP's own small files (references, its log); made when absent.
        of_store: flags that tell every task where the store's server is.
        environment: variables for every task.

    Raises:
        TaskFailed: the first task that fails ends the run.
        Stopped: SIGTERM or SIGINT came; the running stage has ended in its own orderly way.
        EnvironmentFault: this kfp no longer runs tasks through our handler.
    """
    global _session
    _session = _Session(of_store=of_store, environment=environment or {})
    root.mkdir(parents=True, exist_ok=True)
    try:
        pipeline = components.load_component_from_file(str(yaml_path))
    except Exception as error:  # kfp's own check of a document that somebody else may have written
        raise UsageError(
            f"--pipeline {yaml_path}: expected a pipeline as `yanmo compile` writes it; "
            f"kfp says: {in_words(error)}"
        ) from error
    with (
        (root / "kfp.log").open("a", encoding="utf-8") as chatter,
        contextlib.redirect_stdout(chatter),  # this process's only; stages write to our stdout itself
        warnings.catch_warnings(action="ignore", category=UserWarning),  # "cpu_limit has no effect"
        mock.patch.object(sth, "SubprocessTaskHandler", ProcessHandler),
        _session.processes.hear_signals(),
    ):
        local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(root), raise_on_error=True)
        pipeline(**parameters)
    if not _session.tasks:
        raise EnvironmentFault(
            "kfp ran no task through Yanmo's handler: its private name kfp.local.subprocess_task_handler."
            "SubprocessTaskHandler has changed; install the kfp pinned in pyproject.toml"
        )
    return _session.tasks
