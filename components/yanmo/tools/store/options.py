"""Options of `yanmo store`, apart from what does the work: `--help` needs them alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from yanmo.options.fields import REQUIRED, opt, word
from yanmo.options.shared import WHAT, NamedOptions, ToolOptions
from yanmo.options.values import number_in

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


_MOST = 100 * 365 * 86400
"""A hundred years, in seconds."""


@dataclass(frozen=True)
class Age:
    """An age such as 90s, 30m, 12h, 7d or 2w.

    Raises:
        ValueError: the text is none, or more than a hundred years.
    """

    text: str
    expected: ClassVar = "an age such as 90s, 30m, 12h, 7d or 2w, up to a hundred years"

    def __post_init__(self) -> None:
        if not 0 <= self.seconds <= _MOST:
            raise ValueError(self.text)

    def __str__(self) -> str:
        return self.text

    @property
    def seconds(self) -> float:
        """The age in seconds; not a number where the text is none."""
        number = None if " " in self.text else number_in(self.text[:-1])
        unit = _UNITS.get(self.text[-1:])
        return 0.0 if self.text == "0" else math.nan if number is None or unit is None else number * unit


@dataclass(frozen=True, kw_only=True)
class LsOptions(ToolOptions, group="ls"):
    """List pointers, outputs and work in progress.

    Outputs are shown with their size and age, and who names them.
    """

    stage: str = opt("", "only outputs of this stage or part")
    channel: str = opt("", "only pointers of this channel, and what they name")
    json: bool = opt(False, "for scripts: one JSON document")


@dataclass(frozen=True, kw_only=True)
class ShowOptions(NamedOptions, group="show"):
    """Show an output's manifest for a person.

    What made it, from what, its counts, files and options, and who names it.
    """

    what: str = word(WHAT)
    json: bool = opt(False, "the manifest itself, with all files, and its reference")


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(NamedOptions, group="verify"):
    """Compare every byte that WHAT needs, or of the whole store, with the manifests.

    Follows inputs and parts to the raw files. Names every damaged file, the first one first; one is
    enough for exit code 65. Bytes come from the store itself, past this machine's scratch cache.
    Without WHAT every pointer, history and committed output is checked.
    """

    what: tuple[str, ...] = word(WHAT, ())


@dataclass(frozen=True, kw_only=True)
class DiffOptions(NamedOptions, group="diff"):
    """Say which option or input made two outputs differ.

    An option, an input, the revision or an execution option, back to the first cause. Follows both
    chains where contents differ, so that what is printed last, with the deepest indent, is the
    first difference.
    """

    a: str = word(WHAT)
    b: str = word("what it is compared with")
    other_store: str = opt("", "where B is, if not in --store", metavar="URI")


@dataclass(frozen=True, kw_only=True)
class GcOptions(ToolOptions, group="gc"):
    """Remove what nothing refers to (a dry run unless --delete).

    A dry run by default shows what would be removed, and why. Removed: outputs that no pointer,
    history, live run or other kept output refers to; attempts that were never committed; work of
    finished runs, expired leases, KFP's files, probes, temporary files and unfinished uploads. All of
    it only where it was last written longer ago than --older-than.

    Never removed: what a pointer, a record of a history (every champion), one of the newest
    --keep-runs runs of a channel, a live run, an unfinished run that may go on, or a young output
    refers to, through inputs and parts down to the raw files' digests; and what --force replaced in
    an output that stays. Safe while runs are at work (gc_sweep.py says why): while a stage of a run is
    at work, all that the run made stays. Give an age longer than a task may wait for a node or in a
    queue.
    """

    delete: bool = opt(False, "do it; by default only show what would be removed")
    older_than: Age = opt(Age("7d"), "only what was last written so long ago: 90s, 12h, 7d, 2w")
    keep_runs: int = opt(0, "outputs of this many newest runs of each channel are kept, however old")
    abandoned: Age = opt(
        Age("30d"),
        "work (checkpoints) of a run that never finished is removed after this; not that of a training that "
        "its channel's next run finishes",
    )

    def contradictions(self) -> list[str]:
        is_shorter = self.abandoned.seconds < self.older_than.seconds
        return ["--abandoned is shorter than --older-than: expected at least as long"] * is_shorter


@dataclass(frozen=True, kw_only=True)
class CpOptions(NamedOptions, group="cp"):
    """Copy an output with its whole chain to another store.

    The chain is all that it rests on (inputs, parts). A pointer may be set there, too. Every file
    is verified as it leaves and hashed again as it arrives. An output's manifest is written last,
    and after those of its inputs, so that the target never names what it does not hold. The same
    command goes on after a kill: files that have arrived are compared and not sent again. What is
    committed there already is compared by name and size only; `yanmo store verify` reads it.
    """

    what: tuple[str, ...] = word(WHAT)
    to: str = opt(REQUIRED, "the store to copy it to", metavar="URI")
    to_endpoint: str = opt("", "its S3 server; default: --endpoint", metavar="URL")
    pointer: str = opt("", "pointer to set there; for one WHAT", metavar="CHANNEL/NAME")

    def contradictions(self) -> list[str]:
        is_many = self.pointer and len(self.what) > 1
        return ["--pointer names one output: give one WHAT"] if is_many else []


@dataclass(frozen=True, kw_only=True)
class LineageOptions(NamedOptions, group="lineage"):
    """List what holds a document, or what an output rests on.

    For a document, the outputs that hold it and what rests on them, which models learned it, directly or
    through the model that they started from, and which of them are champions; for an output, what it rests
    on, and what on it. Documents are looked up in every committed Parquet file with an `id` column:
    documents, evaluation sets, token caches, evaluations. A document made from another (augmentation) counts
    too. Statistics of the row groups, which are sorted by id, spare most of the reading.
    """

    what: tuple[str, ...] = word(f"the id of a document (64 digits of 0-9a-f), or {WHAT}")
    json: bool = opt(False, "for scripts: one JSON document")
