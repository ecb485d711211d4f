"""`python -m yanmo.resolve`: write references for KFP, or print them as an --inputs file."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from yanmo.common.answers import answer, only_answers
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import ExitCode
from yanmo.common.logs import setup
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv
from yanmo.options.whole_run import WholeRun
from yanmo.resolve.config import STAGE, ResolveOptions
from yanmo.resolve.references import body, inputs_json, resolve
from yanmo.stage.failing import failed
from yanmo.stage.form import read_form
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo.stage.options_line import options_line
from yanmo.stage.rerun import rerun_command
from yanmo.stage.run import tell_children, with_store
from yanmo.stage.run_telemetry import telemetry_of
from yanmo.stage.trying import until_it_ends
from yanmo.store.opening import store_of


def main(argv: Sequence[str] | None = None) -> int:
    """Resolve the channel's pointers; returns the exit code."""

    def serve() -> int:
        options, words = None, default_argv(argv)
        try:
            options = load(ResolveOptions, words, "yanmo resolve")
            setup(options.log_level, STAGE.name, options.log_format)
            tell_children(options)
            with telemetry_of(STAGE, options) as telemetry:
                telemetry.state("working")
                until_it_ends(functools.partial(_resolve, options), options.wait_seconds)
                telemetry.ended(ExitCode.DONE)
        except (OSError, ValueError, RuntimeError) as error:
            return failed(STAGE, error, rerun_command(STAGE, words, options))
        return ExitCode.DONE

    return ended(STAGE.name, serve)


def _resolve(options: ResolveOptions, number: int) -> None:
    outputs = ExecutorOutputs.parse(options.executor_input)
    options = with_store(options, outputs)
    with only_answers():
        store = store_of(options)
        line = options_line(options.others)
        run = read_form(STAGE, options.stages, options.form, options.defaults, line)
        options = _with_own(options, run)
        references = resolve(store, options)
    if outputs:
        found = {"options": run.line(but=STAGE.name), "channel": options.channel, **options.pods}
        outputs.write({name: body(r) for name, r in references.items()}, {}, found)
    else:
        answer(inputs_json(references))


def _with_own(options: ResolveOptions, run: WholeRun) -> ResolveOptions:
    """The options with what the form and the line say of this task itself."""
    said = {name: getattr(run.options[STAGE.name], name) for name in run.settings[STAGE.name]}
    return dataclasses.replace(options, **said)


if __name__ == "__main__":
    as_process(main)
