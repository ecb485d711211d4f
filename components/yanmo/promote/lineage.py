"""From an evaluation back to the raw input files, and how to make each output again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.store.manifest import Reference
from yanmo.common.store.output import Output, open_reference

_MOST_SOURCES = 200
"""Raw input files listed on the page."""


@dataclass(frozen=True)
class Ancestor:
    """One output on the way to the verdict."""

    output: Output
    inputs: dict[str, str]
    """Input name -> `stage/key` or the URI of a raw file."""
    command: str
    """Makes it again; empty for a part, which its stage makes."""


@dataclass
class Lineage:
    """All ancestors, nearest first, each once."""

    ancestors: list[Ancestor] = field(default_factory=list)
    sources: list[tuple[str, str]] = field(default_factory=list)
    """Name and sha256 of raw input files."""
    lost: list[str] = field(default_factory=list)
    """What could not be read any more, in words."""

    def of_stage(self, stage: str) -> Output | None:
        """The nearest ancestor made by `stage`."""
        return next((a.output for a in self.ancestors if a.output.manifest.stage == stage), None)


def trace(*outputs: Output) -> Lineage:
    """The lineage of `outputs`, breadth first; a lost ancestor is noted and does not stop it."""
    lineage, waiting, seen = Lineage(), list(outputs), set()
    while waiting:
        output = waiting.pop(0)
        name = (output.manifest.stage, output.manifest.key)
        if name in seen:
            continue
        seen.add(name)
        inputs: dict[str, str] = {}
        for label, value in output.manifest.inputs.items():
            inputs[label] = _described(value)
            if not value:
                continue
            if "manifest_uri" in value:
                waiting += _opened(output, label, value, lineage)
            elif len(lineage.sources) < _MOST_SOURCES:
                lineage.sources += [s for s in _raw(value) if s not in lineage.sources]
        waiting += _parts(output, lineage)
        lineage.ancestors.append(Ancestor(output, inputs, rerun_command(output)))
    return lineage


def _opened(output: Output, label: str, value: dict[str, Any], lineage: Lineage) -> list[Output]:
    try:
        return [open_reference(output.store, Reference(**value))]
    except (DataError, TypeError) as error:
        lineage.lost.append(f"{output}: {label}: {error}")
        return []


def _parts(output: Output, lineage: Lineage) -> list[Output]:
    found = []
    for name, value in output.manifest.references.items():
        found += _opened(output, name, value, lineage)
    return found


def _raw(value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    files = value.get("files") or [{"name": value.get("uri", ""), "sha256": value.get("content_digest", "")}]
    for file in files:
        yield str(file["name"]), str(file["sha256"])


def _described(value: Any) -> str:
    if not value:
        return "none"
    if "manifest_uri" in value:
        return f"{value['stage']}/{value['key']}"
    return str(value.get("uri", "raw input"))


def rerun_command(output: Output) -> str:
    """The command that makes `output` again from the same inputs and options; empty for a part."""
    configs = output.entries("config.yaml")
    manifest = output.manifest
    if not configs:
        return ""
    prefix = f"cas/{manifest.stage}/{manifest.key}/{manifest.attempt}"
    words = ["yanmo", manifest.stage, "--store", output.store.uri]
    words += ["--config", f"{output.store.uri.removeprefix('file://')}/{prefix}/config.yaml"]
    for name, value in manifest.inputs.items():
        words += ["--" + name.replace("_", "-"), _described(value).replace("file://", "")]
    return shlex.join([*words, "--pointer", "none"])
