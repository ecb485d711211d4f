"""The run form and the options of all stages of a run, read and checked before the first stage begins.

The first task alone reads them, and leaves the others their options, in one line, and the inputs that it
looked up. A wrong value, or a contradiction in `train`'s options, so ends the run at once and not after an
hour of tokenizing; and a field that is empty has its default: KFP's "Clone run" empties every field that was
not filled in.

    --options=pinned  --model=pinned:start_model

say in a later task that the value is the one that was left. It lies in the record of the run
(store/runs/run_record.py). By way of KFP each task would hang on the first one, and the graph that a person
looks at would show these lines and not the data's.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yanmo.common.errors import DataError, UsageError
from yanmo.options.command_line import load
from yanmo.options.fields import NONE, Contradiction, flag, names_of, option_fields, values_of
from yanmo.options.one_line import as_line, read_line
from yanmo.options.shared import Settings, StageOptions
from yanmo.options.values import AUTO, brief
from yanmo.stage.declaration import Stage
from yanmo.store.objects import ObjectStore
from yanmo.store.runs.run_record import RUN, run_record_name

PINNED = "pinned"
"""In the place of a value: that of the run's first task."""
_OWN_WORDS = tuple(f"{flag(name)}=" for name in names_of(StageOptions))
"""How words begin that are the task's own, whatever they say: a channel may be called `pinned`."""
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


@dataclass(frozen=True)
class WholeRun:
    """What a form, its line of other options and the pipeline's defaults say together."""

    settings: Settings
    options: Mapping[str, StageOptions]
    """Stage -> its options, read by its own reader."""

    def with_stage(self, stage: str, own: Mapping[str, str]) -> WholeRun:
        """With these settings of a stage in the place of what was said of it; raises as `read_run`."""
        read = _reader(stage, type(self.options[stage]), ())({}, own)
        return WholeRun({**self.settings, stage: own}, {**self.options, stage: read})

    def line(self, but: str) -> str:
        """The settings of all stages but one in one line, as their `--options` takes it."""
        handed_on = {stage: own for stage, own in self.settings.items() if stage != but}
        return as_line({f"{s}.{name}": text for s, own in handed_on.items() for name, text in own.items()})


def read_run(
    stages: Mapping[str, type[StageOptions]],
    form: Settings,
    defaults: Settings,
    line: str,
    more: Sequence[str] = (),
) -> WholeRun:
    """Give each stage's own reader what the pipeline will give it.

    Args:
        stages: name -> options of each stage of the run.
        form: its fields; an empty one has its default.
        defaults: what an empty field stands for, and what the pipeline sets where `line` does not.
        line: options off the form, of all stages: see `one_line`.
        more: flags that every task gets as well.

    Raises:
        UsageError: as the stage itself would; begins with the name of the form's field, or of the stage.
    """
    others = read_line(line, stages)
    settings, options = dict[str, Mapping[str, str]](), dict[str, StageOptions]()
    wrong: list[str] = []
    for stage, cls in stages.items():
        fields, own = form.get(stage, {}), others.get(stage, {})
        _refuse_fields(stage, cls, fields, own)
        filled = {name: text for name, text in fields.items() if text.strip()}
        by_pipeline = defaults.get(stage, {})
        filled = {name: text for name, text in by_pipeline.items() if name in fields} | filled
        own = {name: text for name, text in by_pipeline.items() if name not in fields} | own
        read = _reader(stage, cls, more)
        try:
            options[stage] = read(filled, own)
        except UsageError as error:
            wrong += _each_wrong(read, filled, own) or [str(error)]
            continue
        settings[stage] = {**_without_auto(cls, filled), **own}
    if not wrong:
        wrong = [problem for each in options.values() for problem in each.problems_beside(options, settings)]
    if wrong:
        problems = "; ".join(dict.fromkeys(wrong))
        raise UsageError(problems)
    return WholeRun(settings, options)


Read = Callable[[Mapping[str, str], Mapping[str, str]], StageOptions]
"""Fields of the form and options off the form of a stage -> its options."""


def _reader(stage: str, cls: type[StageOptions], more: Sequence[str]) -> Read:
    """Return what reads as the stage itself would; errors begin with the field or the stage."""

    def read(fields: Mapping[str, str], own: Mapping[str, str]) -> StageOptions:
        flags = [f"{flag(name)}={text}" for name, text in fields.items()]
        inputs = [f"{flag(field.name)}={NONE}" for field in option_fields(cls, "input")]
        off = as_line({f"{stage}.{name}": text for name, text in own.items()})
        line = [f"--options={off}"] if own else []
        try:
            return load(cls, [*_SET_BY_THE_PIPELINE, *more, *inputs, *flags, *line], f"yanmo {stage}")
        except UsageError as error:
            said = str(error)
            where = "" if said.startswith(f"options of {stage}") else f"{stage}: "
            raise UsageError(_named(cls, fields, said) or f"{where}{said}") from error

    return read


def _each_wrong(read: Read, fields: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
    """Return what is wrong with each value alone, so that a form is mended in one go.

    A contradiction is none of that: beside a default a value may be wrong that is right beside the form's.
    """
    nothing = dict[str, str]()
    alone = [({name: text}, nothing) for name, text in fields.items()]
    alone += [(nothing, {name: text}) for name, text in own.items()]
    found = []
    for one in alone:
        try:
            read(*one)
        except UsageError as error:
            if not isinstance(error.__cause__, Contradiction):
                found.append(str(error))
    return found


def _without_auto(cls: Any, fields: Mapping[str, str]) -> dict[str, str]:
    known = values_of(cls)
    return {n: text for n, text in fields.items() if not (known[n].takes_auto and text.strip() == AUTO)}


def _refuse_fields(
    stage: str, cls: type[StageOptions], fields: Iterable[str], own: Mapping[str, str]
) -> None:
    """Nothing is set in two places, where one would silently win."""
    for field in option_fields(cls):
        if field.name in own and field.name in fields:
            named = _field(field.name, field.metadata)
            raise UsageError(f"options: {stage}.{field.name} is the form's field {named}; set it there")


def _named(cls: type[StageOptions], form: Iterable[str], message: str) -> str:
    """An error that begins with an option of the form, with its field in the option's place; else empty.

    KFP's log view shows some 75 characters of the line, so that no name stands there twice.
    """
    for field in option_fields(cls):
        name = flag(field.name)
        if field.name in form and message.startswith((f"{name} ", f"{name}:")):
            return _field(field.name, field.metadata) + message.removeprefix(name)
    return ""


def _field(name: str, declared: Mapping[str, object]) -> str:
    return str(declared["form"] or name)


def read_form(first: Stage, stages: Sequence[str], form: Sequence[str], defaults: str, line: str) -> WholeRun:
    """Return what the form of a run says together with the line of other options.

    Args:
        first: the stage that reads it, whose own options may be in it as well.
        stages: modules that declare the others.
        form: its fields, STAGE.OPTION=VALUE each; an empty one has its default.
        defaults: what an empty field stands for, and what the pipeline sets besides, in one line.

    Raises:
        UsageError: a value that an option cannot have; begins with the field's name.
    """
    configs = {stage.name: stage.config for stage in (first, *declared(stages))}
    return read_run(configs, _by_stage(form), read_line(defaults), line)


def _by_stage(form: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for each in form:
        name, equals, value = each.partition("=")
        stage, dot, option = name.partition(".")
        if not (equals and dot):
            raise UsageError(f"--form {brief(each)}: expected STAGE.OPTION=VALUE")
        found.setdefault(stage, {})[option] = value
    return found


def declared(modules: Sequence[str]) -> list[Stage]:
    """Return the stages that modules declare: no stage knows another.

    Such a `config.py` needs the standard library alone.

    Raises:
        UsageError: a module that declares none.
    """
    return [_declared(module) for module in modules]


def _declared(module: str) -> Stage:
    try:
        found = importlib.import_module(module).STAGE
    except (ImportError, AttributeError, TypeError, ValueError):
        found = None
    if not isinstance(found, Stage):
        raise UsageError(
            f"--stages {brief(module)}: expected the module of a STAGE, such as yanmo.train.config"
        )
    return found


def is_pinned(words: Sequence[str]) -> bool:
    """Return whether a command line takes anything of the run's first task."""
    return f"--options={PINNED}" in words


def load_shared(words: Sequence[str], prog: str) -> StageOptions:
    """Return what a command line says of the options that all stages share: where the rest is.

    Raises:
        UsageError: as `load`.
    """
    return load(StageOptions, [word for word in words if word.startswith(_OWN_WORDS)], prog)


def with_pinned(words: Sequence[str], store: ObjectStore, options: StageOptions) -> list[str]:
    """Return a command line with the values that the run's first task left.

    Raises:
        DataError: it left none: its record is gone, damaged, or a later task's, which entered its output
            after gc had removed the first one's.
    """
    record = RUN.read(store, run_record_name(options.channel, options.run_id))
    if record is None or not record.pinned:
        raise DataError(
            f"run {options.run_id} has no record in channel {options.channel!r} of {store.uri}: its first "
            "task, resolve, did not end well, or gc removed it; clone the run"
        )
    found = {PINNED: record.options}
    found |= {f"{PINNED}:{n}": one.to_json() if one else NONE for n, one in record.pinned.items()}

    def filled(word: str) -> str:
        name, equals, value = word.partition("=")
        return word if word.startswith(_OWN_WORDS) else name + equals + found.get(value, value)

    return [filled(word) for word in words]
