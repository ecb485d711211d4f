"""The options of all stages of a run, checked before the first stage begins.

A contradiction in `train`'s options is refused at once and not after an hour of tokenizing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from yanmo.common.errors import UsageError
from yanmo.options.command_line import load
from yanmo.options.fields import NONE, StageOptions, flag, option_fields
from yanmo.options.one_line import as_line, read_line

_SET_BY_THE_PIPELINE = tuple(
    f"{flag(name)}={value}"
    for name, value in {
        "store": "check",
        "channel": "check",
        "run_id": "check",
        "metrics_port": 0,
        "executor_input": "check",
    }.items()
)


def check_run(
    stages: Mapping[str, type[StageOptions]],
    form: Mapping[str, Mapping[str, str]],
    line: str,
    more: Sequence[str] = (),
) -> None:
    """Give each stage's own parser what the pipeline will give it.

    Args:
        stages: name -> options of each stage of the run.
        form: stage -> option -> what the form says of it.
        line: options off the form, of all stages: see `one_line`.
        more: flags that every task gets as well.

    Raises:
        UsageError: as the stage itself would; begins with the name of the form's field, or of the stage.
    """
    given = read_line(line, stages)
    for stage, cls in stages.items():
        flags = [f"{flag(name)}={text}" for name, text in form.get(stage, {}).items()]
        inputs = [f"{flag(field.name)}={NONE}" for field in option_fields(cls, "input")]
        own = as_line({f"{stage}.{name}": text for name, text in given.get(stage, {}).items()})
        others = [f"--options={own}"] if own else []
        try:
            load(cls, [*_SET_BY_THE_PIPELINE, *more, *inputs, *flags, *others], f"yanmo {stage}")
        except UsageError as error:
            raise UsageError(f"{_named(cls, form.get(stage, {}), str(error)) or stage}: {error}") from error


def _named(cls: type[StageOptions], form: Iterable[str], message: str) -> str:
    """The field of the form that an error begins with; empty where it is another option's."""
    for field in option_fields(cls):
        if field.name in form and message.startswith((f"{flag(field.name)} ", f"{flag(field.name)}:")):
            return str(field.metadata["form"])
    return ""
