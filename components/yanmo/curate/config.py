"""Options of the curate stage.

`phase` is the first phase whose output an option changes; without it that is the first of all, `map`, whose
work on a file is kept for other runs. So an option without a phase is part of every key, and no outdated text
is reused because of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from yanmo.curate.metrics import METRICS
from yanmo.curate.options.source_options import FieldOptions, SourceOptions
from yanmo.curate.options.split_options import DuplicateOptions, OverlapOptions, SplitOptions
from yanmo.curate.options.text_options import FilterOptions, TextFormOptions
from yanmo.options.fields import Only, Options, Scalar, by_kind, input_ref, names_of, opt
from yanmo.options.shared import EngineOptions, StageOptions
from yanmo.stage.declaration import Stage


@dataclass(frozen=True, kw_only=True)
class FileOptions(Options, group="machine"):
    """Processes and output files."""

    shard_characters: int = opt(
        20_000_000, "approximate size of an output file, characters", least=1, phase="files"
    )
    workers: int = opt(
        0,
        "processes that normalize text; 0: one for each CPU that this one may use, or of the Ray cluster",
        kind="execution",
        most=10_000,
        often=True,
    )
    batch_bytes: int = opt(
        4_194_304, "bytes of text that a process normalizes at a time", kind="execution", least=1
    )


@dataclass(frozen=True, kw_only=True)
class CurateOptions(
    SourceOptions,
    FieldOptions,
    TextFormOptions,
    FilterOptions,
    DuplicateOptions,
    SplitOptions,
    OverlapOptions,
    FileOptions,
    EngineOptions,
    StageOptions,
):
    """Turn raw text into clean documents, split into train, valid, test and confirm."""

    evaluation_set: str = input_ref(
        "evaluation set to keep out of training; 'none' chooses a new one from this text",
        stages=("evaluation_set",),
        optional=True,
    )


STAGE = Stage(
    name="curate",
    image="data",
    revision=11,
    config=CurateOptions,
    outputs={"documents": "Dataset", "evaluation_set": "Dataset", "report": "Markdown"},
    metrics=METRICS,
)

MAP = ("",)
"""The first phase: options declare no `phase` for it."""


def of_phases(options: CurateOptions, phases: tuple[str, ...]) -> tuple[dict[str, Scalar], Any]:
    """Return the options of these phases for a part's key, and an object in which only they can be read."""
    named = names_of(type(options), kind="semantic", phase=phases)
    unkeyed = names_of(type(options), kind=("execution", "environment"))
    keyed = {name: value for name, value in by_kind(options, "semantic").items() if name in named}
    return keyed, Only(options, {*named, *unkeyed})
