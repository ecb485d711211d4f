"""The command that runs a stage again, as a person gives it: in a shell, after a run of KFP's, a Job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from yanmo.common.errors import UsageError
from yanmo.common.shell_words import shell_line
from yanmo.options.one_line import read_line
from yanmo.options.shared import StageOptions
from yanmo.stage.declaration import Stage

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def rerun_command(stage: Stage, argv: Sequence[str], options: StageOptions | None = None) -> str:
    """Return the command; empty where `yanmo run` or a launch started the stage, which says its own.

    Args:
        argv: the arguments that the stage was given.
        options: what was read from them; None where they could not be read.
    """
    if not in_a_pod():
        is_task = any(word.startswith("--executor-input") for word in argv)
        return "" if is_task else shell_line(["yanmo", stage.name, *argv])
    if stage.name == "resolve":  # the first task, which checks the form
        return "yanmo submit, or Clone run in KFP's UI"
    # a training on several nodes is begun again by whoever launched it
    name = "launch" if getattr(options, "nnodes", 1) > 1 else stage.name
    words = ["yanmo", "rerun", name]
    if namespace := _namespace():
        words.append(f"--namespace={namespace}")
    if options is None:
        return shell_line(words)
    words.append(f"--channel={options.channel}")
    is_task = bool(options.executor_input) or name == "launch"
    inputs = f"run:{options.run_id}" if is_task and options.run_id else options.inputs
    words += [f"--inputs={inputs}"] if inputs not in ("", "latest") else []
    lines = [word.partition("=")[2] for word in argv if word.startswith("--options=")]
    given = {n: text for line in lines for n, text in _own(line, stage.name).items() if n != "take"}
    return shell_line([*words, *(f"--set={stage.name}.{n}={text}" for n, text in given.items())])


def _own(line: str, stage: str) -> dict[str, str]:
    """Return the options of `stage` in a line; none where it is no such line."""
    try:
        return read_line(line).get(stage, {})
    except UsageError:
        return {}


def _namespace() -> str:
    """Return the namespace of the pod that this is; "" where nothing says it."""
    try:
        return os.environ.get("YANMO_NAMESPACE") or _NAMESPACE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def in_a_pod() -> bool:
    """Return whether this process runs in a cluster, where nobody sees the command that began it."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
