"""Limits of the compiled pipelines that the run form sets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

COMPILED = sorted((Path(__file__).parents[2] / "pipelines/compiled").glob("*.yaml"))
_INPUT = re.compile(r"\{\{\$\.inputs\.parameters\['([\w-]+)'\]\}\}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def _types_by_input(spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What an input of the root's tasks is called there -> the type of where it comes from."""
    root = spec["root"]
    for name, parameter in root.get("inputDefinitions", {}).get("parameters", {}).items():
        yield f"pipelinechannel--{name}", parameter["parameterType"]
    for task, given in root["dag"]["tasks"].items():
        component = spec["components"][given["componentRef"]["name"]]
        for name, parameter in component.get("outputDefinitions", {}).get("parameters", {}).items():
            yield f"pipelinechannel--{task}-{name}", parameter["parameterType"]


@pytest.mark.parametrize("path", COMPILED, ids=lambda p: p.stem)
def test_a_limit_that_comes_from_a_parameter_comes_from_a_string(path: Path) -> None:
    """KFP's driver (2.17.0) reads a number as "" and drops the limit without a word."""
    spec = next(d for d in yaml.safe_load_all(path.read_text(encoding="utf-8")) if "deploymentSpec" in d)
    named = {
        name
        for executor in spec["deploymentSpec"]["executors"].values()
        for text in _texts(executor.get("container", {}).get("resources", {}))
        for name in _INPUT.findall(text)
    }
    form = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    assert len(named) == (3 if "training_pod_gpus" in form else 0), "those of training"
    types = dict(_types_by_input(spec))
    assert {types[name] for name in named} <= {"STRING"}
    for component in spec["components"].values():
        inner = component.get("inputDefinitions", {}).get("parameters", {})
        assert all(inner[name]["parameterType"] == "STRING" for name in named & inner.keys())
