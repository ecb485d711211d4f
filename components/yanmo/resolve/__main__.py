"""`python -m yanmo.resolve`: write references for KFP, or print them as an --inputs file."""

from __future__ import annotations

from collections.abc import Sequence

from yanmo.common.answers import answer, only_answers
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import ExitCode
from yanmo.common.logs import setup
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv
from yanmo.resolve.config import STAGE, ResolveOptions
from yanmo.resolve.form import checked_form
from yanmo.resolve.references import body, inputs_json, resolve
from yanmo.stage.failing import failed
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo.stage.options_line import options_line
from yanmo.stage.run import with_store
from yanmo.store.opening import store_of


def main(argv: Sequence[str] | None = None) -> int:
    """Resolve the channel's pointers; returns the exit code."""

    def serve() -> int:
        try:
            _resolve(load(ResolveOptions, default_argv(argv), "yanmo resolve"))
        except (OSError, ValueError, RuntimeError) as error:
            return failed(STAGE, error)
        return ExitCode.DONE

    return ended(STAGE.name, serve)


def _resolve(options: ResolveOptions) -> None:
    setup(options.log_level, STAGE.name)
    outputs = ExecutorOutputs.parse(options.executor_input)
    options = with_store(options, outputs)
    with only_answers():
        store = store_of(options)
        others = options_line(options.others)
        checked_form(options, others)
        references = resolve(store, options)
    if outputs:
        outputs.write({name: body(r) for name, r in references.items()}, {}, {"options": others})
    else:
        answer(inputs_json(references))


if __name__ == "__main__":
    as_process(main)
