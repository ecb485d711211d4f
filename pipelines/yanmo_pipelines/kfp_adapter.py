"""Stage declarations -> KFP components and run form: the only module that builds KFP signatures.

A stage's options are listed once, in its config dataclass. KFP reads `inspect.signature` and the
docstring of the function it is given and then calls it positionally, so a generated signature makes
real container components with typed, described parameters. Alternative not taken: lightweight
components, which put code into strings and kfp into every image.

What a component takes: the artifacts wired to it (bodies are references of a few hundred bytes), store,
channel, and one line with the options of all stages, of which each takes its own. In a pipeline the first
task alone takes the fields of the form: it makes that line of them, so that a field is read, checked and
given its default in one place, and leaves it in the store with what the channel's pointers named
(yanmo.stage.form), so that the graph's arrows are those of the data.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

from kfp import dsl

from yanmo.options.fields import AUTO, NONE, flag, option_fields, spelled
from yanmo.options.one_line import as_line
from yanmo.stage.declaration import Stage
from yanmo.stage.form import PINNED
from yanmo_pipelines import resources
from yanmo_pipelines.run_form import OWN_FIELDS, FormField

_COMMON = {"store": "where bytes live", "run_id": "id of the pipeline run"}
"""What every task takes."""


def component(stage: Stage, inputs: Mapping[str, type]) -> Any:
    """Return the KFP container component that runs `stage` in anybody's pipeline.

    Args:
        inputs: the inputs that are wired -> artifact class; the others come with one of these, or are the
            channel's as in a shell.

    Raises:
        TypeError: an input that the stage does not have, or a required one that is not wired.
    """
    _check_wiring(stage, inputs)
    parameters = [
        *(_artifact(input_name(stage, n), dsl.Input[cls]) for n, cls in inputs.items()),
        *_outputs(stage),
        *(_parameter(n, default) for n, default in (("store", ""), ("channel", "main"), ("options", ""))),
    ]

    def arguments(values: dict[str, Any]) -> list[str]:
        own = {"channel": values["channel"], "options": values["options"]}
        return _arguments(stage, values, inputs, own, unwired="")

    described = {
        "store": _COMMON["store"],
        "channel": "series of runs whose latest outputs this becomes",
        "options": f"options of {stage.name}, in one line: {stage.name}.NAME=VALUE with blanks between",
    }
    return _container(stage, parameters, described, arguments)


def task_component(
    stage: Stage,
    inputs: Mapping[str, type],
    pinned: Mapping[str, str],
    channel: str,
    flags: Sequence[str] = (),
) -> Any:
    """The component that runs `stage` in a pipeline of Yanmo's, after its first task.

    Args:
        inputs: the inputs that are wired -> artifact class.
        pinned: input -> what the first task has looked up for it, "" for the line of options; all other
            inputs are `none`, so that no task follows a pointer.
        channel: that of an empty field of the form.
        flags: options of the stage that another task's results give.

    Raises:
        TypeError: as `component`.
    """
    _check_wiring(stage, inputs)
    parameters = [
        *map(_parameter, _COMMON),
        _parameter("channel"),
        *(_artifact(input_name(stage, n), dsl.Input[cls]) for n, cls in inputs.items()),
        *_outputs(stage),
        *map(_parameter, flags),
    ]

    def arguments(values: dict[str, Any]) -> list[str]:
        own = {n: f"{PINNED}:{name}" if name else PINNED for n, name in pinned.items()}
        own |= {"run_id": values["run_id"], "options": PINNED}
        own |= {each: values[each] for each in flags}
        # KFP hands on an emptied field as it is; the last channel that is not empty counts.
        channels = [f"--channel={channel}", f"--channel={values['channel']}"]
        return [*_arguments(stage, values, inputs, own), *channels]

    described = {
        **_COMMON,
        "channel": OWN_FIELDS["channel"],
        **{f.name: str(f.metadata["help"]) for f in option_fields(stage.config) if f.name in flags},
    }
    return _container(stage, parameters, described, arguments)


def first_component(stage: Stage, fields: Sequence[FormField], defaults: str, others: Sequence[Stage]) -> Any:
    """Return the component that reads the form; its parameters are the form's fields.

    Args:
        defaults: what an empty field stands for, and what the pipeline sets besides, in one line.
        others: the stages of the run whose options it checks and hands on.
    """
    taken = {field: first_input(stage, field.name) for field in fields}
    types = {name: field.type for field, name in taken.items()}
    parameters = [
        *map(_parameter, _COMMON),
        *_outputs(stage),
        *(_artifact(name, type) for name, type in types.items()),
        _parameter(first_input(stage, "options")),
    ]

    def arguments(values: dict[str, Any]) -> list[str]:
        return [
            *_arguments(stage, values, {}, {"run_id": values["run_id"]}),
            *(f"--stages={each.declared_in}" for each in others),
            f"--defaults={defaults}",
            *(f"--form={field.stage}.{field.option}={values[name]}" for field, name in taken.items()),
            f"--others={values['given_options']}",
        ]

    described = {**_COMMON, "given_options": OWN_FIELDS["options"]}
    described |= {name: field.help for field, name in taken.items()}
    return _container(stage, parameters, described, arguments)


def first_input(stage: Stage, name: str) -> str:
    """Return KFP's name of a field that the first task takes; in a signature no output may have the same."""
    return f"given_{name}" if name in stage.parameters else name


def _container(
    stage: Stage,
    parameters: Sequence[Parameter],
    described: dict[str, str],
    arguments: Callable[[dict[str, Any]], list[str]],
) -> Any:
    def build(*given: Any) -> dsl.ContainerSpec:
        values = dict(zip([p.name for p in parameters], given, strict=True))
        return dsl.ContainerSpec(
            image=resources.IMAGES[stage.image],
            command=["python3", "-m", stage.module],
            args=arguments(values),
        )

    build.__name__ = stage.name
    build.__doc__ = _docstring(inspect.getdoc(stage.config) or "", described)
    build.__signature__ = Signature(list(parameters))  # type: ignore[attr-defined]
    return dsl.container_component(build)


def _outputs(stage: Stage) -> list[Parameter]:
    return [
        *(_artifact(n, dsl.Output[getattr(dsl, kind)]) for n, kind in stage.outputs.items()),
        *(_artifact(n, dsl.OutputPath(str)) for n in stage.parameters),
        *(_artifact(n, dsl.OutputPath(kind)) for n, kind in stage.objects.items()),
    ]


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
    """Return what KFP calls the input `name`; in a signature no output may have the same name."""
    return f"given_{name}" if name in stage.outputs else name


def _artifact(name: str, annotation: Any) -> Parameter:
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)


def _parameter(name: str, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=str, default=default)


def _arguments(
    stage: Stage,
    values: Mapping[str, Any],
    inputs: Iterable[str],
    own: Mapping[str, Any],
    unwired: str = NONE,
) -> list[str]:
    """Return the command line. `--OPTION=value` in one string, so that a value may begin with a dash."""
    others = [f for f in option_fields(stage.config, "input") if f.name not in {*inputs, *own}]
    pairs = {
        "store": values["store"],
        "metrics_port": resources.METRICS_PORT,
        **own,
        **{name: values[input_name(stage, name)].path for name in inputs},
        **{f.name: unwired for f in others if unwired and f.metadata["inside"] not in inputs},
        "executor_input": dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER,
    }
    return [f"{flag(name)}={value}" for name, value in pairs.items()]


def _docstring(summary: str, described: dict[str, str]) -> str:
    lines = "".join(f"    {name}: {text}\n" for name, text in described.items())
    return f"{summary}\n\nArgs:\n{lines}"


@dataclasses.dataclass(frozen=True)
class Form:
    """What a pipeline gets of its form while it is built: a channel for each field."""

    values: Mapping[str, Any]
    """Name of a field, `store` and `options` among them -> its channel."""
    fields: Sequence[FormField]
    """Those that the first task reads and gives its default where one is empty."""


def pipeline_of(
    name: str, about: str, fields: Sequence[FormField], body: Callable[[Form], None], channel: str = "main"
) -> Any:
    """Return the pipeline whose form has these fields, and `channel`, `options` and `store`.

    Args:
        body: makes the tasks.
        channel: default of the field of that name.
    """
    read = [*fields, FormField("channel", "resolve", "channel", str, channel, OWN_FIELDS["channel"])]
    texts = [_parameter(each, default="") for each in ("options", "store")]
    parameters = {field.name: field.parameter(field.name) for field in read}  # stages may share one
    signature = Signature(sorted([*parameters.values(), *texts], key=lambda p: p.name))

    def pipeline(*args: Any, **kwargs: Any) -> None:
        body(Form(signature.bind(*args, **kwargs).arguments, read))

    described = {field.name: field.help for field in fields} | OWN_FIELDS
    pipeline.__name__ = name.replace("-", "_")
    pipeline.__doc__ = _docstring(about, described)  # KFP reads no parameters without a first line
    pipeline.__signature__ = signature  # type: ignore[attr-defined]
    # KFP's UI shows the description where a pipeline is opened: its form shows names alone.
    lines = [about, "", *(f"{field}: {text}" for field, text in sorted(described.items()))]
    made = dsl.pipeline(name=name, description="\n".join(lines))(pipeline)
    # Drop-downs: the SDK has no way to say them (2.17 refuses typing.Literal); UI and API server know them.
    form = made.pipeline_spec.root.input_definitions.parameters
    for name, choices in {field.name: field.choices for field in fields}.items():
        for choice in choices:
            form[name].literals.add().string_value = choice
    return made


@dataclasses.dataclass
class Tasks:
    """Makes the tasks of one pipeline: `tasks(BALANCE, documents=curated.outputs["documents"])`."""

    form: Form
    column: str
    """Of the table of resources."""
    store_secret: str = resources.STORE_SECRET

    def first(self, stage: Stage, others: Iterable[Stage], defaults: Mapping[str, str] | None = None) -> Any:
        """Return the task that reads the form for all `others` before any of them begins.

        Args:
            defaults: option (`resolve.training_pod_nodes`) -> what the pipeline sets where nobody else does.
        """
        by_pipeline = {
            f"{field.stage}.{field.option}": spelled(field.default)
            for field in self.form.fields
            if field.default not in ("", AUTO)
        }
        line = as_line(by_pipeline | dict(defaults or {}))
        make = first_component(stage, self.form.fields, line, [s for s in others if s is not stage])
        values = self.form.values
        given = {first_input(stage, f.name): values[f.name] for f in self.form.fields}
        task = make(**self._common(), given_options=values["options"], **given)
        return resources.apply(task, stage.name, self.column, store_secret=self.store_secret)

    def __call__(
        self,
        stage: Stage,
        *,
        pinned: Mapping[str, str] | None = None,
        pod: Mapping[str, Any] | None = None,
        flags: Mapping[str, Any] | None = None,
        **inputs: Any,
    ) -> Any:
        """One task of `stage`; keyword arguments wire its inputs to outputs of other tasks.

        Args:
            pinned: input -> what the first task has looked up for it.
            pod: what the form sets of its pod: see `resources.apply`.
            flags: option of the stage -> result of another task.
        """
        flags = flags or {}
        classes = {n: _artifact_class(channel) for n, channel in inputs.items()}
        channel = next(str(f.default) for f in self.form.fields if f.name == "channel")
        make = task_component(stage, classes, pinned or {}, channel, tuple(flags))
        wired = {input_name(stage, n): channel for n, channel in inputs.items()}
        task = make(**self._common(), channel=self.form.values["channel"], **wired, **flags)
        return resources.apply(
            task, stage.name, self.column, **{**(pod or {}), "store_secret": self.store_secret}
        )

    def _common(self) -> dict[str, Any]:
        """Return the arguments of every task. KFP fills the placeholder as a task's input alone."""
        return {"store": self.form.values["store"], "run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER}


def _artifact_class(channel: Any) -> type:
    """Return the artifact class of what is wired, so that a consumer's type is its producer's."""
    schema = str(channel.channel_type).partition("@")[0]
    return _CLASSES[schema]


_CLASSES: dict[str, type] = {
    cls.schema_title: cls for cls in (dsl.Dataset, dsl.Model, dsl.Metrics, dsl.HTML, dsl.Artifact)
}
