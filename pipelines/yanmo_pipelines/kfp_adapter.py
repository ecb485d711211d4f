"""Stage declarations -> KFP components and run form: the only module that builds KFP signatures.

A stage's options are listed once, in its config dataclass. KFP reads `inspect.signature` and the
docstring of the function it is given and then calls it positionally, so a generated signature makes
real container components with typed, described parameters. Alternative not taken: lightweight
components, which put code into strings and kfp into every image.

What a component takes: the artifacts wired to it (bodies are references of a few hundred bytes), the
options with `form=True`, and `config`, YAML or a path of YAML for all other options. Those are not
passed as flags, because a flag wins over the file.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from inspect import Parameter, Signature
from typing import Any, get_type_hints

from kfp import dsl

from yanmo.options.fields import AUTO, NONE, flag, option_fields
from yanmo.stage.declaration import Stage
from yanmo_pipelines import resources

MAX_FORM_FIELDS = 25
CONFIG_HELP = "other options of {stage}: 'name: value' lines of YAML, or the path of such a file"


@dataclasses.dataclass(frozen=True)
class FormField:
    """One parameter of a pipeline that sets one option of a stage."""

    stage: str
    option: str
    type: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name on the run form, which sorts by name: `train_steps`."""
        return f"{self.stage}_{self.option}"

    def parameter(self, name: str) -> Parameter:
        return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=self.type, default=self.default)


def form_fields(stage: Stage) -> list[FormField]:
    """The run form of `stage`: its options with form=True, then `config` for the rest."""
    hints = get_type_hints(stage.config)
    fields = [_field_of(stage, f, hints[f.name]) for f in option_fields(stage.config) if f.metadata["form"]]
    if any(not f.metadata["form"] for f in option_fields(stage.config, "semantic", "execution")):
        fields.append(FormField(stage.name, "config", str, "", CONFIG_HELP.format(stage=stage.name)))
    return fields


def _field_of(stage: Stage, option: dataclasses.Field[Any], kind: type) -> FormField:
    """The form's field of an option; one that takes `auto` is a text, whatever it becomes."""
    meta = option.metadata
    if not meta.get("auto"):
        return FormField(stage.name, option.name, kind, option.default, meta["help"], meta["choices"])
    choices = (AUTO, *(c for c in meta["choices"] if c != AUTO)) if meta["choices"] else ()
    help = f"{meta['help']}; auto or empty: {meta['auto']}"
    return FormField(stage.name, option.name, str, AUTO, help, choices)


def component(
    stage: Stage, inputs: dict[str, type], *, name: str = "", pointer: str = "", with_gpus: bool = False
) -> Any:
    """The KFP container component that runs `stage`.

    Args:
        inputs: the inputs that are wired -> artifact class; all others are given as `none`, so that
            no task follows a pointer.
        name: name of the component and its task; the stage's own by default.
        pointer: pointer of the channel that success moves; the stage's name by default.
        with_gpus: whether it has a parameter `gpus`. The command does not use it: KFP's compiler passes
            a pipeline parameter into a condition only if a task there takes it as an argument, and
            forgets the one in a task's accelerator limit (2.17.0), so that the task would not start.

    Raises:
        TypeError: an input that the stage does not have, or a required one that is not wired.
    """
    _check_wiring(stage, inputs)
    fields = form_fields(stage)
    parameters = [
        Parameter("store", Parameter.POSITIONAL_OR_KEYWORD, annotation=str),
        Parameter("channel", Parameter.POSITIONAL_OR_KEYWORD, annotation=str),
        *(_artifact(input_name(stage, n), dsl.Input[cls]) for n, cls in inputs.items()),
        *(_artifact(n, dsl.Output[getattr(dsl, kind)]) for n, kind in stage.outputs.items()),
        *(_artifact(n, dsl.OutputPath(str)) for n in stage.parameters),
        *(field.parameter(field.option) for field in fields),
        *(
            [Parameter("gpus", Parameter.POSITIONAL_OR_KEYWORD, annotation=str, default="0")]
            if with_gpus
            else []
        ),
    ]

    def build(*given: Any) -> dsl.ContainerSpec:
        values = dict(zip([p.name for p in parameters], given, strict=True))
        return dsl.ContainerSpec(
            image=resources.IMAGES[stage.image],
            command=["python3", "-m", stage.module],
            args=_arguments(stage, values, inputs, fields, pointer),
        )

    build.__name__ = name or stage.name
    described = {"store": "where bytes live", "channel": "whose pointers are moved"}
    described |= {field.option: field.help for field in fields}
    described |= {"gpus": "GPUs of the pod"} if with_gpus else {}
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

    def flat(self, *stages: Stage) -> dict[str, Any]:
        """Form name -> value, to hand on to a nested pipeline with the same options."""
        names = {s.name for s in stages}
        return {f.name: self._values[f.name] for f in self._fields if f.stage in names}


def with_options(*stages: Stage) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a pipeline one parameter per form field of `stages`; it gets them as `options`."""
    fields = [field for stage in stages for field in form_fields(stage)]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = [
            p for p in inspect.signature(function, eval_str=True).parameters.values() if p.name != "options"
        ]
        generated = [field.parameter(field.name) for field in fields]
        parameters = sorted([*own, *generated], key=lambda p: (p.default is not Parameter.empty, p.name))
        signature = Signature(parameters)

        def pipeline(*args: Any, **kwargs: Any) -> None:
            given = signature.bind(*args, **kwargs).arguments
            values = {field.name: given.pop(field.name) for field in fields}
            function(**given, options=PipelineOptions(values, fields))

        pipeline.__name__ = function.__name__
        described = {field.name: field.help for field in fields}
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


@dataclasses.dataclass(frozen=True)
class Tasks:
    """Makes the tasks of one pipeline: `tasks(BALANCE, documents=curated.outputs["documents"])`."""

    store: Any
    channel: Any
    options: PipelineOptions

    def __call__(
        self, stage: Stage, *, name: str = "", pointer: str = "", gpus: Any = None, **inputs: Any
    ) -> Any:
        """One task of `stage`; keyword arguments wire its inputs to outputs of other tasks."""
        classes = {n: _artifact_class(channel) for n, channel in inputs.items()}
        make = component(stage, classes, name=name, pointer=pointer, with_gpus=gpus is not None)
        wired = {input_name(stage, n): channel for n, channel in inputs.items()}
        if gpus is not None:
            wired["gpus"] = gpus
        task = make(store=self.store, channel=self.channel, **wired, **self.options.of(stage))
        return resources.apply(task, stage.name, gpus)


def _artifact_class(channel: Any) -> type:
    """The artifact class of what is wired, so that a consumer's type is its producer's."""
    schema = str(channel.channel_type).partition("@")[0]
    return _CLASSES[schema]


_CLASSES: dict[str, type] = {
    cls.schema_title: cls for cls in (dsl.Dataset, dsl.Model, dsl.Metrics, dsl.HTML, dsl.Artifact)
}
