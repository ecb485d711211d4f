"""The console script `yanmo`: a table command -> module, none of which is imported before it is asked for.

`yanmo evaluate ...` is `python -m yanmo.evaluate ...`, so that a container, a CronJob and a person type
the same flags. Cost: 20 ms over the module itself.
"""

from __future__ import annotations

import runpy
import signal
import sys
from types import FrameType

from yanmo.common.names import STAGES

COMMANDS = {
    **{stage: (f"yanmo.{stage}", about) for stage, about in STAGES.items()},
    "resolve": ("yanmo.resolve", "print what a channel's pointers name now (the first task of a pipeline)"),
    "runs": ("yanmo.tools.runs", "compare runs: what differs in their options, bits by genre, cost"),
    "store": ("yanmo.tools.store", "list, check, compare, copy and remove outputs in a store"),
    "tokenizer": ("yanmo.tools.tokenizer.command", "compare tokenizers on your text, import an existing one"),
    "documents": ("yanmo.tools.documents.command", "show what curate dropped and changed, and why"),
    "cache": ("yanmo.tools.cache.command", "show a token cache, and plan a training's rows from it"),
    "model": ("yanmo.tools.model.command", "import a model in Hugging Face's format into a store"),
    "run": ("yanmo_pipelines.run", "run a compiled pipeline on this machine, each task as a process"),
    "generate": ("yanmo.tools.generate.command", "let a model go on from a text, or answer a question"),
    "export": (
        "yanmo.tools.export.command",
        "write a model as a folder for transformers, vLLM or llama.cpp",
    ),
    "submit": (
        "yanmo_pipelines.cluster.submit",
        "run a pipeline in a cluster's KFP, and follow it to its verdict",
    ),
    "schedule": (
        "yanmo_pipelines.cluster.schedules.command",
        "runs by the clock from a file: recurring runs of KFP",
    ),
    "launch": (
        "yanmo_pipelines.cluster.launch",
        "train on several nodes of a cluster: a TrainJob of Kubeflow Trainer",
    ),
    "rerun": (
        "yanmo_pipelines.cluster.rerun",
        "run one stage again in a cluster, as a Job",
    ),
    "status": (
        "yanmo_pipelines.cluster.status.command",
        "channels, champions, what runs where, what waits and why",
    ),
    "doctor": (
        "yanmo_pipelines.cluster.doctor",
        "check an installation in a cluster; what to do about each finding",
    ),
    "compile": ("yanmo_pipelines.compile", "compile the pipelines to YAML for KFP"),
}
_USAGE, _ENVIRONMENT = 64, 78  # yanmo.common.errors.ExitCode, not imported for speed


def main() -> None:
    """Run the command named by the first argument; the process ends with that command's exit code."""
    _end_on_sigterm()
    if sys.argv[1:2] in (["-h"], ["--help"]) and sys.argv[2:3] and sys.argv[2] in COMMANDS:
        sys.argv[1], sys.argv[2] = sys.argv[2], sys.argv[1]  # `yanmo --help train`
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in ("-h", "--help", "--version"):
        from yanmo.common.answers import show
        from yanmo.options.help import version

        show(version() if name == "--version" else _help())
        return
    if name not in COMMANDS:
        problem = f"unknown command {name!r}{_did_you_mean(name)}" if name else "no command given"
        print(f"yanmo: {problem}\n\n{_help()}", file=sys.stderr)
        sys.exit(_USAGE)
    module = COMMANDS[name][0]
    del sys.argv[1]
    from yanmo.common.answers import take_stdout

    take_stdout()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("yanmo", "yanmo_pipelines"):
            raise
        print(
            f"yanmo {name}: the Python package {error.name!r} is not installed; `pip install` Yanmo with its "
            "extra: data for curate, balance, tokenize, tokenizer, documents and cache; train for train, "
            "evaluate, promote, generate, export and model; pipeline for run and compile; "
            "cluster for submit, launch, schedule, rerun, status and doctor",
            file=sys.stderr,
        )
        sys.exit(_ENVIRONMENT)


def _end_on_sigterm() -> None:
    """Until the command has a handler of its own: process 1 of a container ignores what it does not handle.

    A pod deleted while its stage imports torch would be killed only after its whole grace period.
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, stop)


def _did_you_mean(name: str) -> str:
    from yanmo.common.words import did_you_mean

    return did_you_mean(name, COMMANDS)


def _help() -> str:
    lines = "".join(f"\n  {name:<10}{line}" for name, (_, line) in COMMANDS.items())
    return f"usage: yanmo COMMAND [options]; `yanmo COMMAND --help` shows its options\n{lines}"


if __name__ == "__main__":
    main()
