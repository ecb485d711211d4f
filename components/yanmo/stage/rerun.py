"""The command that runs a stage again, as a person gives it: in a shell, after a run of KFP's, a Job."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from yanmo.common.shell_words import shell_line
from yanmo.options.shared import StageOptions
from yanmo.stage.declaration import Stage


def rerun_command(stage: Stage, argv: Sequence[str], options: StageOptions | None = None) -> str:
    """Return the command; empty where `yanmo run` or a launch started the stage, which says its own.

    Args:
        argv: the arguments that the stage was given.
        options: what was read from them; None where they could not be read.
    """
    is_pod = in_a_pod()
    if any(word.partition("=")[0] == "--executor-input" for word in argv):
        if not is_pod:
            return ""
        if stage.name == "resolve":  # the first task, which checks the form
            return "yanmo submit, or Clone run in KFP's UI"
        inputs = [f"--inputs=run:{options.run_id}"] if options and options.run_id else []
        return shell_line(["yanmo", "rerun", stage.name, *inputs])
    if is_pod and getattr(options, "nnodes", 1) > 1:
        return ""
    if is_pod:
        name = (
            f"rerun-{stage.name}-{time.strftime('%d-%H%M%S')}"  # a Job of an earlier rerun may still be there
        )
        return f"kubectl create job {name} --from=cronjob/stage-{stage.name}"
    return shell_line(["yanmo", stage.name, *argv])


def in_a_pod() -> bool:
    """Return whether this process runs in a cluster, where nobody sees the command that began it."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
