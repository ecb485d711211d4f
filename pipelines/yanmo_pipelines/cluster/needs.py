"""What each task's pod of a compiled pipeline asks for, with the form's values in it.

KFP's driver makes the pod's spec from the same fields. Only what a scheduler looks at is read: requests,
node selector, tolerations, and the image.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.options.command_line import load
from yanmo.resolve.config import STAGE as RESOLVE
from yanmo.resolve.config import ResolveOptions
from yanmo.stage.form import read_form
from yanmo.stage.options_line import options_line
from yanmo_pipelines.cluster.quantities import quantity

_INPUT_IN = re.compile(r"\{\{\$\.inputs\.parameters\['([^']+)'\]\}\}")
_INPUT = re.compile(_INPUT_IN.pattern + r"\Z")
_FIELDS = {"cpu": "Cpu", "memory": "Memory"}


@dataclass(frozen=True, kw_only=True)
class PodNeeds:
    """What a pod asks of a node."""

    task: str
    image: str
    requests: Mapping[str, Decimal]
    """Resource -> amount: cpu in cores, memory in bytes, GPUs."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()


def pods_of(documents: list[dict[str, Any]], values: Mapping[str, Any]) -> list[PodNeeds]:
    """The pods of every task.

    Args:
        documents: the compiled YAML's: the pipeline, and what is Kubernetes' own of it.
        values: of the run form, by name; what is not there has the form's default.

    Raises:
        UsageError: a value that Kubernetes cannot read.
    """
    spec = documents[0]
    platform = documents[1] if len(documents) > 1 else {}
    of_kubernetes = (
        platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    )
    form = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    given = {name: one.get("defaultValue", "") for name, one in form.items()} | dict(values)
    tasks = list(_containers(spec))
    handed_on = {
        name: _handed_on(container, _inputs(task, given, {}))
        for name, task, _, container in tasks
        if container.get("command", [])[-1:] == [RESOLVE.module]
    }
    return [
        _pod(name, container, of_kubernetes.get(label, {}), _inputs(task, given, handed_on))
        for name, task, label, container in tasks
    ]


def _handed_on(container: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, str]:
    """What the first task says of pods that follow, by its own reading of the form.

    A line of options in a bucket is read by that task alone: here it counts as none.
    """
    given = [_placed(arg, inputs) for arg in container.get("args", []) if "--executor-input" not in arg]
    options = load(ResolveOptions, given, f"yanmo {RESOLVE.name}")
    line = "" if "://" in options.others.partition("=")[0] else options_line(options.others)
    run = read_form(RESOLVE, options.stages, options.form, options.defaults, line)
    own = run.options[RESOLVE.name]
    assert isinstance(own, ResolveOptions)
    return own.pods


def _placed(text: str, inputs: Mapping[str, Any]) -> str:
    """An argument with the values of the inputs in it."""
    return _INPUT_IN.sub(lambda found: str(inputs.get(found[1], "")), text)


def _containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], str, Mapping[str, Any]]]:
    """Task name, task, label of its executor, its container."""
    executors = spec["deploymentSpec"]["executors"]
    for name, task in spec["root"]["dag"]["tasks"].items():
        label = spec["components"][task["componentRef"]["name"]].get("executorLabel", "")
        container = executors.get(label, {}).get("container")
        if container:
            yield name, task, label, container


def _inputs(
    task: Mapping[str, Any], given: Mapping[str, Any], handed_on: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """Input of the task -> its value, where the form, the pipeline or the first task says it.

    Also each output of the first task by its own name, as Kubernetes' part of the YAML names it.
    """
    found: dict[str, Any] = {name: text for each in handed_on.values() for name, text in each.items()}
    for name, source in task.get("inputs", {}).get("parameters", {}).items():
        if "componentInputParameter" in source:
            found[name] = given.get(source["componentInputParameter"], "")
        elif "runtimeValue" in source:
            found[name] = source["runtimeValue"].get("constant", "")
        elif source.get("taskOutputParameter", {}).get("producerTask") in handed_on:
            output = source["taskOutputParameter"]
            found[name] = handed_on[output["producerTask"]].get(output["outputParameterKey"], "")
    return found


def _pod(
    task: str, container: Mapping[str, Any], more: Mapping[str, Any], inputs: dict[str, Any]
) -> PodNeeds:
    asked, requests = container.get("resources", {}), {}
    for resource, field_name in _FIELDS.items():
        texts = [asked.get(f"resource{field_name}{kind}", "") for kind in ("Request", "Limit")]
        text = next((t for t in (_filled(t, inputs) for t in texts) if t), "")
        if text:
            requests[resource] = _amount(task, resource, text)
    accelerator = asked.get("accelerator", {})
    count = _filled(accelerator.get("resourceCount", accelerator.get("count", "")), inputs)
    if count and (amount := _amount(task, "GPUs", count)):
        kind = accelerator.get("resourceType") or accelerator.get("type") or "nvidia.com/gpu"
        requests[_filled(kind, inputs)] = amount
    return PodNeeds(
        task=task,
        image=_filled(container.get("image", ""), inputs),
        requests=requests,
        node_selector=_selector(more.get("nodeSelector", {}), inputs),
        tolerations=tuple(_tolerations(more.get("tolerations", []), inputs)),
    )


def _filled(text: Any, inputs: Mapping[str, Any]) -> str:
    """The text, or the value of the input that it stands for."""
    found = _INPUT.match(str(text))
    return str(inputs.get(found[1], "")) if found else str(text)


def _amount(task: str, what: str, text: str) -> Decimal:
    try:
        return quantity(text)
    except ValueError as error:
        raise UsageError(f"{what} of task {task}: {error}") from None


def _json_value(source: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """A selector or tolerations that came as a parameter: JSON, or its text."""
    if "runtimeValue" in source:
        return source["runtimeValue"].get("constant")
    made = source.get("taskOutputParameter", {}).get("outputParameterKey", "")
    value = inputs.get(source.get("componentInputParameter", made))
    if isinstance(value, str) and value.strip():
        try:
            return json.loads(value)
        except ValueError:
            return None
    return value


def _selector(found: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, str]:
    labels = dict(found.get("labels", {}))
    value = _json_value(found["nodeSelectorJson"], inputs) if "nodeSelectorJson" in found else None
    return labels | ({str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {})


def _tolerations(found: list[Mapping[str, Any]], inputs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for each in found:
        if "tolerationJson" in each:
            value = _json_value(each["tolerationJson"], inputs)
            yield from value if isinstance(value, list) else [value] if isinstance(value, dict) else []
        else:
            yield each
