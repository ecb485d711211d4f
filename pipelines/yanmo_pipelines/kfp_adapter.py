"""Stage declarations -> KFP components and run form: the only module that builds KFP signatures.

A stage's options are listed once, in its config dataclass. KFP reads `inspect.signature` and the
docstring of the function it is given and then calls it positionally, so a generated signature makes
real container components with typed, described parameters. Alternative not taken: lightweight
components, which put code into strings and kfp into every image.

What a component takes: the artifacts wired to it (bodies are references of a few hundred bytes), the
options that are fields of the run form, and `options`, one line with the others of all stages, of which each
stage takes its own. Those are not passed as flags, because a flag wins over the line.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, Signature
from typing import Any, get_type_hints

from kfp import dsl

from yanmo.options.fields import AUTO, NONE, flag, option_fields
from yanmo.stage.declaration import Stage
from yanmo_pipelines import resources

MAX_FORM_FIELDS = 20
OWN_FIELDS = {
    "channel": "whose pointers are read and moved: main, dev, nightly ...",
    "store": "where outputs are kept: s3://bucket/prefix; empty: what the Secret yanmo-store says, else "
    "KFP's own bucket",
    "options": "options off the form, of all stages, in one line: train.warmup_steps=20 balance.by=author; a "
    "value with blanks in quotation marks; or the URI of a file that holds such a line",
}
"""Fields of every pipeline that are no stage's option."""


@dataclasses.dataclass(frozen=True)
class FormField:
    """One parameter of a pipeline that sets one option of a stage."""

    name: str
    """Its name on the run form, which sorts by name and shows nothing else: `data_sources`."""
    stage: str
    option: str
    type: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()

    def parameter(self, name: str) -> Parameter:
        return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=self.type, default=self.default)


def form_fields(stage: Stage) -> list[FormField]:
    """The options of `stage` that are fields of the run form."""
    hints = get_type_hints(stage.config)
    return [_field_of(stage, f, hints[f.name]) for f in option_fields(stage.config) if f.metadata["form"]]


def _field_of(stage: Stage, option: dataclasses.Field[Any], kind: type) -> FormField:
    """The form's field of an option; one that takes `auto` is a text, whatever it becomes."""
    meta, help = option.metadata, str(option.metadata["help"])
    choices = tuple(meta["choices"] or meta["suggested"])
    default = option.default
    if meta.get("auto"):
        kind, default, help = str, AUTO, f"{help}; auto or empty: {meta['auto']}"
        choices = (AUTO, *(c for c in choices if c != AUTO)) if choices else ()
    return FormField(meta["form"], stage.name, option.name, kind, default, help, choices)


def component(
    stage: Stage, inputs: dict[str, type], *, name: str = "", pointer: str = "", checks: Iterable[Stage] = ()
) -> Any:
    """The KFP container component that runs `stage`.

    Args:
        inputs: the inputs that are wired -> artifact class; all others are given as `none`, so that
            no task follows a pointer.
        name: name of the component and its task; the stage's own by default.
        pointer: pointer of the channel that success moves; the stage's name by default.
        checks: the stages whose form it checks: it then takes all their fields, by the form's names, and
            the line of options as it was given.

    Raises:
        TypeError: an input that the stage does not have, or a required one that is not wired.
    """
    _check_wiring(stage, inputs)
    fields = form_fields(stage)
    checked = [field for each in checks for field in form_fields(each)]
    reads_line = "options" in stage.parameters  # and gives it back: KFP would have two of one name
    line, line_flag = ("given_options", "others") if reads_line else ("options", "options")
    parameters = [
        Parameter("store", Parameter.POSITIONAL_OR_KEYWORD, annotation=str),
        Parameter("channel", Parameter.POSITIONAL_OR_KEYWORD, annotation=str),
        *(_artifact(input_name(stage, n), dsl.Input[cls]) for n, cls in inputs.items()),
        *(_artifact(n, dsl.Output[getattr(dsl, kind)]) for n, kind in stage.outputs.items()),
        *(_artifact(n, dsl.OutputPath(str)) for n in stage.parameters),
        *(field.parameter(field.option) for field in fields),
        *(field.parameter(field.name) for field in checked),
        Parameter(line, Parameter.POSITIONAL_OR_KEYWORD, annotation=str, default=""),
    ]

    def build(*given: Any) -> dsl.ContainerSpec:
        values = dict(zip([p.name for p in parameters], given, strict=True))
        return dsl.ContainerSpec(
            image=resources.IMAGES[stage.image],
            command=["python3", "-m", stage.module],
            args=[
                *_arguments(stage, values, inputs, fields, pointer),
                *(f"--stages={each.name}" for each in checks),
                *(f"--form={field.stage}.{field.option}={values[field.name]}" for field in checked),
                f"{flag(line_flag)}={values[line]}",
            ],
        )

    build.__name__ = name or stage.name
    described = {"store": "where bytes live", "channel": "whose pointers are moved"}
    described |= {field.option: field.help for field in fields}
    described |= {field.name: field.help for field in checked}
    described |= {line: OWN_FIELDS["options"]}
    build.__doc__ = _docstring(inspect.getdoc(stage.config) or "", described)
    build.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return dsl.container_component(build)


def _check_wiring(stage: Stage, inputs: Iterable[str]) -> None:
    known = {f.name: f for f in option_fields(stage.config, "input")}
    unknown = sorted(set(inputs) - known.keys())
    if unknown:
        raise TypeError(
            f"{stage.name} has no input {', '.join(unknown)}; it has {', '.join(known) or 'none'}"
        )
    missing = [n for n, f in known.items() if not f.metadata["optional"] and n not in inputs]
    if missing:
        raise TypeError(f"{stage.name}: required input {', '.join(missing)} is not wired")


def input_name(stage: Stage, name: str) -> str:
    """What KFP calls the input `name`; in a signature no output may have the same name."""
    return f"given_{name}" if name in stage.outputs else name


def _artifact(name: str, annotation: Any) -> Parameter:
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)


def _arguments(
    stage: Stage, values: dict[str, Any], inputs: Iterable[str], fields: list[FormField], pointer: str
) -> list[str]:
    """The command line. `--OPTION=value` in one string, so that a value may begin with a dash."""
    unwired = [f.name for f in option_fields(stage.config, "input") if f.name not in inputs]
    pairs = {
        "store": values["store"],
        "channel": values["channel"],
        "run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER,
        "metrics_port": resources.METRICS_PORT,
        **({"pointer": pointer} if pointer else {}),
        **{name: values[input_name(stage, name)].path for name in inputs},
        **dict.fromkeys(unwired, NONE),
        **{field.option: values[field.option] for field in fields},
        "executor_input": dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER,
    }
    return [f"{flag(name)}={value}" for name, value in pairs.items()]


def _docstring(summary: str, described: dict[str, str]) -> str:
    lines = "".join(f"    {name}: {text}\n" for name, text in described.items())
    return f"{summary}\n\nArgs:\n{lines}"


class PipelineOptions:
    """The pipeline's parameters, grouped by stage."""

    def __init__(self, values: dict[str, Any], fields: list[FormField]) -> None:
        self._values, self._fields = values, fields

    def of(self, stage: Stage) -> dict[str, Any]:
        """Option name -> value or channel, for one stage."""
        return {f.option: self._values[f.name] for f in self._fields if f.stage == stage.name}

    def by_name(self, stages: Iterable[Stage]) -> dict[str, Any]:
        """Name on the form -> value or channel, for some stages."""
        names = {stage.name for stage in stages}
        return {f.name: self._values[f.name] for f in self._fields if f.stage in names}


def with_options(
    *stages: Stage, defaults: Mapping[str, Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a pipeline one parameter per form field of `stages`; it gets them as `fields`.

    Args:
        defaults: name on the form -> default, where it is not the option's own.
    """
    other = defaults or {}
    fields = [
        dataclasses.replace(field, default=other.get(field.name, field.default))
        for stage in stages
        for field in form_fields(stage)
    ]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = [
            p for p in inspect.signature(function, eval_str=True).parameters.values() if p.name != "fields"
        ]
        generated = [field.parameter(field.name) for field in fields]
        parameters = sorted([*own, *generated], key=lambda p: (p.default is not Parameter.empty, p.name))
        signature = Signature(parameters)

        def pipeline(*args: Any, **kwargs: Any) -> None:
            given = signature.bind(*args, **kwargs).arguments
            values = {field.name: given.pop(field.name) for field in fields}
            function(**given, fields=PipelineOptions(values, fields))

        pipeline.__name__ = function.__name__
        described = {field.name: field.help for field in fields}
        described |= {p.name: OWN_FIELDS[p.name] for p in own if p.name in OWN_FIELDS}
        summary, _, own_args = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
        pipeline.__doc__ = _docstring(summary, described) + own_args
        pipeline.__signature__ = signature  # type: ignore[attr-defined]
        return pipeline

    return decorate


def add_drop_downs(pipeline: Any, stages: Iterable[Stage]) -> Any:
    """Put each option's choices into the compiled form.

    The SDK has no way to say it (2.17 refuses typing.Literal); the UI and the API server know it.
    """
    parameters = pipeline.pipeline_spec.root.input_definitions.parameters
    for field in (f for stage in stages for f in form_fields(stage)):
        for choice in field.choices:
            parameters[field.name].literals.add().string_value = choice
    return pipeline


@dataclasses.dataclass
class Tasks:
    """Makes the tasks of one pipeline: `tasks(BALANCE, documents=curated.outputs["documents"])`."""

    store: Any
    channel: Any
    fields: PipelineOptions
    options: Any
    """The line of options off the form: as it was given for the first task, then as that has read it."""

    def first(self, stage: Stage, checks: Iterable[Stage]) -> Any:
        """The task that checks the form of all stages before any of them begins."""
        stages = tuple(checks)
        make = component(stage, {}, checks=stages)
        own = {**self.fields.of(stage), **self.fields.by_name(stages)}
        task = make(store=self.store, channel=self.channel, given_options=self.options, **own)
        self.options = task.outputs["options"]
        return resources.apply(task, stage.name)

    def __call__(
        self,
        stage: Stage,
        *,
        name: str = "",
        pointer: str = "",
        pod: Mapping[str, Any] | None = None,
        **inputs: Any,
    ) -> Any:
        """One task of `stage`; keyword arguments wire its inputs to outputs of other tasks.

        Args:
            pod: limits of its pod that the form sets: see `resources.apply`.
        """
        classes = {n: _artifact_class(channel) for n, channel in inputs.items()}
        make = component(stage, classes, name=name, pointer=pointer)
        wired = {input_name(stage, n): channel for n, channel in inputs.items()}
        task = make(
            store=self.store,
            channel=self.channel,
            options=self.options,
            **wired,
            **self.fields.of(stage),
        )
        return resources.apply(task, stage.name, **(pod or {}))


def _artifact_class(channel: Any) -> type:
    """The artifact class of what is wired, so that a consumer's type is its producer's."""
    schema = str(channel.channel_type).partition("@")[0]
    return _CLASSES[schema]


_CLASSES: dict[str, type] = {
    cls.schema_title: cls for cls in (dsl.Dataset, dsl.Model, dsl.Metrics, dsl.HTML, dsl.Artifact)
}
