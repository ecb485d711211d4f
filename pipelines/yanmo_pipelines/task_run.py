"""A task of a pipeline as it ran on this machine: what is read of it needs no kfp, which runs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from yanmo.stage.kfp_outputs import ExecutorOutputs


def value_of(command: list[str], name: str) -> str:
    """Return the value of a flag in a command line; empty without it."""
    return next((a.partition("=")[2] for a in command if a.startswith(f"{name}=")), "")


@dataclass
class TaskRun:
    """One task as it ran."""

    name: str
    command: list[str]
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of its process and of those that it started and waited for."""
    exit_code: int | None = None
    outputs: ExecutorOutputs | None = None

    @property
    def run_id(self) -> str:
        """The id that KFP gave this run."""
        return value_of(self.command, "--run-id")

    def artifact(self, name: str) -> str:
        """Return the body of its output artifact `name`: a reference, or `none`."""
        if not self.outputs or name not in self.outputs.artifacts:
            return ""
        path = Path(self.outputs.artifacts[name]["uri"])
        return path.read_text(encoding="utf-8") if path.is_file() else ""


class TaskFailed(RuntimeError):
    """A task's process ended with an exit code other than 0."""

    def __init__(self, task: TaskRun) -> None:
        super().__init__(f"task {task.name} failed with exit code {task.exit_code}")
        self.task = task
