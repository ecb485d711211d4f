"""The lineage of an evaluation, back to the raw input files, and how to make each output again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from yanmo.common.errors import DataError
from yanmo.common.shell_words import shell_line
from yanmo.formats.training_text import training_text
from yanmo.options.fields import NONE, by_kind, flag, spelled
from yanmo.promote.hand_over import PromoteRun
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, open_reference


@dataclass(frozen=True)
class Ancestor:
    """One output on the way to the verdict."""

    output: Output
    inputs: dict[str, str]
    """Input name -> `stage/key` or the URI of a raw file."""
    command: str
    """The command that makes it again; empty for a part, which its stage makes."""
    is_former: bool = False
    """Whether only the model that this one began from rests on it, or one before that."""


@dataclass
class Lineage:
    """All ancestors, nearest first, each once; those of former models after all others."""

    ancestors: list[Ancestor] = field(default_factory=list)
    sources: dict[tuple[str, str], None] = field(default_factory=dict)
    """Name and sha256 of raw input files, each once, in order."""
    lost: list[str] = field(default_factory=list)
    """What could not be read any more, in words."""

    def own(self) -> list[Ancestor]:
        """Those of the model itself: of a model that goes on every night the others would fill the page."""
        return [a for a in self.ancestors if not a.is_former]

    def former(self) -> list[Output]:
        """The outputs that former models alone rest on, those models among them."""
        return [a.output for a in self.ancestors if a.is_former]

    def of_stage(self, stage: str) -> Output | None:
        """The nearest ancestor made by `stage`."""
        return next((a.output for a in self.ancestors if a.output.manifest.stage == stage), None)


def trace(*outputs: Output) -> Lineage:
    """The lineage of `outputs`, breadth first; a lost ancestor is noted and does not stop it."""
    lineage, seen = Lineage(), set()
    waiting, bases, is_former = list(outputs), list[Output](), False
    while waiting or bases:
        if not waiting:
            waiting, bases, is_former = bases, [], True
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
                is_base = output.manifest.stage == "train" and label == "model"
                (bases if is_base else waiting).extend(_opened(output, label, value, lineage))
            else:
                lineage.sources |= dict.fromkeys(_raw(value))
        waiting += _parts(output, lineage)
        lineage.ancestors.append(Ancestor(output, inputs, rerun_command(output), is_former))
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
    manifest = output.manifest
    if not output.entries("config.yaml"):
        return ""
    inputs = [word for name, value in manifest.inputs.items() for word in (flag(name), _given(name, value))]
    values = {**manifest.options, **manifest.execution}
    options = _options(output.store, f"{manifest.stage}/{manifest.key}/{manifest.attempt}", values)
    words = ["yanmo", manifest.stage, "--store", output.store.uri, *options, *inputs, *_unkeyed(output)]
    return shell_line([*words, "--pointer", "none"])


def verdict_command(run: PromoteRun) -> str:
    """The command that gives the verdict of a running promote again, and moves nothing."""
    options = _options(
        run.store, f"promote/{run.key}/{run.attempt.id}", by_kind(run.options, "semantic", "execution")
    )
    words = ["yanmo", "promote", "--store", run.store.uri, "--channel", run.options.channel, *options]
    for name, value in run.inputs.items():
        words += [flag(name), f"{value.manifest.stage}/{value.manifest.key}" if value else NONE]
    return shell_line([*words, "--dry-run"])


def _options(store: ObjectStore, attempt: str, values: Mapping[str, Any]) -> list[str]:
    """The options: their file in a folder; flag by flag for a bucket, where no file can be named."""
    folder = store.uri.removeprefix("file://")
    if folder.startswith("/"):
        return ["--config", f"{folder}/cas/{attempt}/config.yaml"]
    return [f"{flag(n)}={spelled(v)}" for n, v in values.items()]


def _unkeyed(output: Output) -> list[str]:
    """Inputs that are in no key, hence in no manifest: without these flags the channel's newest would be
    used."""
    if output.manifest.stage != "evaluate":
        return []
    model = output.input("model")
    texts = training_text(model).texts if model else []
    return ["--documents", f"{texts[0].manifest.stage}/{texts[0].manifest.key}" if texts else NONE]


def _given(name: str, value: Any) -> str:
    """An input as its flag takes it. Raw files come back with the settings they were read with."""
    uri = _described(value)
    files = value.get("files", []) if value else []
    settings = {f["name"]: f["settings"] for f in files if f.get("settings")}
    if not settings:
        return _plain(uri)
    return ", ".join(_with_settings(one, settings) for one in uri.split(", "))


def _with_settings(uri: str, settings: dict[str, Any]) -> str:
    given = settings.get(unquote(uri.rpartition("/")[2]), [])
    return ";".join([_plain(uri), *(f"{name}={value}" for name, value in given)])


def _plain(uri: str) -> str:
    """Without `file://`, where that leaves a path as it is."""
    return uri if "%" in uri else uri.replace("file://", "")
