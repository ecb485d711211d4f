"""Turns `--set name=value` into typed pipeline parameters, checked before the first task starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.common.given_file import MIB, given_text
from yanmo.common.words import did_you_mean
from yanmo.options.values import MOST_EXACT, Bounds, Values, WrongValue, brief
from yanmo.options.yaml_file import yaml_problem
from yanmo.stage.declaration import Stage
from yanmo.stage.form import read_run
from yanmo.stage.options_line import options_line, with_settings
from yanmo_pipelines.run_form import fields_of

MAX_PARAMETER_BYTES = 8000
"""The most bytes of all parameters of a run together; KFP's server refuses 10,000."""

_MOST_BYTES = 16 * MIB
"""Of a compiled pipeline."""
_GIVEN_OTHERWISE = ("store", "channel")
_TYPES = {"STRING": str, "NUMBER_INTEGER": int, "NUMBER_DOUBLE": float, "BOOLEAN": bool}


def read_settings(settings: Iterable[str]) -> dict[str, str]:
    """`["a=1", "b=2"]` as a mapping.

    Raises:
        UsageError: a setting without `=`, or a name given twice.
    """
    result: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: expected NAME=VALUE")
        if name in result:
            raise UsageError(f"--set {name} is given twice")
        result[name] = value
    return result


def pipeline_parameters(path: Path, settings: dict[str, str]) -> dict[str, Any]:
    """Return the settings with the types that the compiled pipeline at `path` declares.

    A field that is set to nothing has its default, as on the form, so it is not among them.

    Args:
        settings: by the name of a field of its run form, or by that of a stage's option (`train.layers`),
            which wins over what `options` says.

    Raises:
        UsageError: not a pipeline, an unknown name, or a value of another type.
    """
    known = form_of(path)
    result = {}
    off_the_form = {name: text for name, text in settings.items() if "." in name}
    for name, text in settings.items():
        if name in off_the_form:
            continue
        if name in _GIVEN_OTHERWISE:
            raise UsageError(f"--set {name}: the command has an option of its own for it: --{name}")
        if name not in known:
            names = ", ".join(n for n in known if n not in _GIVEN_OTHERWISE)
            hint = did_you_mean(name, known)
            raise UsageError(
                f"--set {brief(name)}: {path.name} has no such field{hint}; it has {names}; any option of a "
                "stage is set as STAGE.OPTION"
            )
        if text.strip():
            result[name] = _typed(name, text, known[name])
    if off_the_form:
        result["options"] = with_settings(result.get("options", ""), off_the_form)
    size = sum(len(f"{n}{v}".encode()) for n, v in result.items())
    if size > MAX_PARAMETER_BYTES:
        raise UsageError(
            f"--set: {size} bytes in all, at most {MAX_PARAMETER_BYTES}; put options into a file and give "
            "its name: --set options=FILE"
        )
    return result


def documents_of(text: str) -> list[Any]:
    """Return the YAML's documents: the pipeline, and what is Kubernetes' own of it.

    Raises:
        yaml.YAMLError: it is not YAML.
    """
    import yaml

    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def form_of(path: Path) -> dict[str, dict[str, Any]]:
    """Return the run form of a compiled pipeline: parameter name -> its declaration in the YAML."""
    from yaml import YAMLError

    what, shown = "a pipeline as `yanmo compile` writes it", f"--pipeline {path}"
    text = given_text(path, what, shown=shown, most_bytes=_MOST_BYTES, wrong=UsageError)
    try:
        root = documents_of(text)[0]["root"]
        return dict(root.get("inputDefinitions", {}).get("parameters", {}))
    except (KeyError, TypeError, AttributeError, IndexError):
        raise UsageError(f"{shown}: expected {what}: it has no root") from None
    except (ValueError, RecursionError, YAMLError) as error:
        raise UsageError(f"{shown}: expected {what}; {yaml_problem(error)}") from error


def _typed(name: str, text: str, declared: dict[str, Any]) -> Any:
    """Return the value of a text; the stage checks its bounds (`check_stage_options`)."""
    values = Values(
        type=_TYPES[declared["parameterType"]],
        choices=declared.get("literals", []),
        bounds=Bounds(least=-MOST_EXACT, most=MOST_EXACT),
    )
    try:
        return values.read(text)
    except WrongValue as error:
        raise UsageError(f"--set {name}={error}") from None


def check_stage_options(
    stages: Iterable[Stage], values: Mapping[str, Any], of_store: Sequence[str] = ()
) -> None:
    """Give each stage's own parser what the pipeline will give it, before anything runs.

    Args:
        values: name on the form -> value, of all of its fields.
        of_store: flags that every task gets as well.

    Raises:
        UsageError: as the stage itself would.
    """
    stages = tuple(stages)
    form: dict[str, dict[str, str]] = {stage.name: {} for stage in stages}
    for field in fields_of(*stages):
        if field.name in values:
            form[field.stage][field.option] = str(values[field.name])
    configs = {stage.name: stage.config for stage in stages}
    read_run(configs, form, {}, options_line(str(values.get("options", ""))), of_store)
