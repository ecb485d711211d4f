"""Reads evaluations, and refuses to compare what was not measured in the same way."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.errors import DataError
from yanmo.common.given_file import json_value
from yanmo.formats.records import check_schema
from yanmo.formats.training_text import training_text
from yanmo.store.manifest import MAKE_AGAIN
from yanmo.store.output import Output, read_json

log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """One evaluation, opened."""

    output: Output
    model: Output
    summary: dict[str, Any]
    samples: dict[str, Any]

    @property
    def mean(self) -> float:
        """Bits per character, mean over genres."""
        return float(self.summary["mean"]["bits_per_character"])

    def section(self, name: str) -> Any:
        """Return what it says of `verse`, `memorization` ..., in its summary or a file; or None."""
        if name in self.summary:
            return self.summary[name]
        file = f"{name}.json"
        return (
            json_value(self.output.path(file).read_text(encoding="utf-8"))
            if self.output.entries(file)
            else None
        )

    def documents(self, prefix: str = "documents") -> pa.Table:
        """The scores of all documents, sorted by genre and id.

        Args:
            prefix: beginning of the files' names; nobody reads `confirmation` before rule 10 of the gate.
        """
        paths = self.output.paths(f"{prefix}-*.parquet")
        for path in paths:
            check_schema(path, "evaluation")
        return pa.concat_tables([pq.read_table(path) for path in paths])


def open_evaluation(output: Output) -> Evaluation:
    """Open an evaluation and the model it measured.

    Raises:
        DataError: it is none, or its model is gone.
    """
    if output.manifest.stage != "evaluate":
        raise DataError(f"{output}: expected an output of evaluate; run `yanmo evaluate` and give that")
    model = output.input("model")
    if model is None:
        raise DataError(f"{output}: does not say which model it measured; run `yanmo evaluate` again")
    found = Evaluation(output, model, read_json(output, "summary.json"), read_json(output, "samples.json"))
    if not found.summary.get("genres") or not math.isfinite(found.mean):
        raise DataError(
            f"{output}: holds no finite bits per character; an empty split or a broken model is not judged; "
            "see its model's metrics"
        )
    return found


CONTAMINATION = "contamination"
"""The part of an evaluation that says how much of its texts is in the model's training text."""


def with_writing(evaluation: Evaluation, writing: Output | None) -> Evaluation:
    """The evaluation with what `writing` holds in its summary, and each sample's nearest training text.

    What was looked for in another text than the model's own training text is left out: it says nothing about
    this model.
    """
    if writing is None:
        return evaluation
    verse = read_json(writing, "verse.json")["rules"]
    if _covers(writing, evaluation.model) != "all":
        return replace(evaluation, summary={**evaluation.summary, "verse": verse})
    memorization = read_json(writing, "memorization.json")
    nearest = memorization["nearest"]
    genres = {
        genre: [
            {**text, "nearest": _nearest_named(nearest.get(f"{genre}/{i:04d}"))}
            for i, text in enumerate(texts)
        ]
        for genre, texts in evaluation.samples["genres"].items()
    }
    samples = {**evaluation.samples, "genres": genres}
    found = {"verse": verse, "memorization": memorization}
    return replace(evaluation, summary={**evaluation.summary, **found}, samples=samples)


def with_contamination(evaluation: Evaluation) -> Evaluation:
    """The evaluation with its contamination in the summary, if all or a part of its text was searched.

    Of a part, what was found may be more: it is marked as `at_least`.
    """
    if CONTAMINATION not in evaluation.output.manifest.references:
        return evaluation
    part = evaluation.output.part(CONTAMINATION)
    covered = _covers(part, evaluation.model)
    if covered == "nothing":
        return evaluation
    found = read_json(part, f"{CONTAMINATION}.json")
    if covered == "part":
        found["at_least"] = True
    return replace(evaluation, summary={**evaluation.summary, CONTAMINATION: found})


Coverage = Literal["all", "part", "nothing"]


def coverage(writing: Output, model: Output) -> tuple[Coverage, list[str]]:
    """Say how much of the text that the model was trained on was searched for copies, and what was not.

    Where the lineage has a gap, another text that was searched may be the missing one: a part.
    """
    known = training_text(model)
    inputs = writing.manifest.inputs.items()
    looked = {value["content_digest"] for name, value in inputs if name.startswith("documents") and value}
    missed = [f"{t} was not looked in" for t in known.texts if t.content_digest not in looked]
    if not known.unknown and not missed:
        return "all", []
    return "part" if known.unknown or looked & known.digests() else "nothing", [*known.unknown, *missed]


def _covers(writing: Output, model: Output) -> Coverage:
    """`coverage`, with a warning in the log where it is not all."""
    covered, lacking = coverage(writing, model)
    if lacking:
        log.warning(
            "%s does not cover the training text of %s (%s): copies and contamination are not judged; run "
            "`yanmo evaluate --force` for it again",
            writing,
            model,
            "; ".join(lacking),
        )
    return covered


def _nearest_named(nearest: dict[str, Any] | None) -> dict[str, Any] | None:
    if nearest is None:
        return None
    return {"title": str(nearest["title"])[:200], "likeness": float(nearest["likeness"])}


def is_of(writing: Output, evaluation: Output) -> bool:
    """Return whether `writing` was measured on the samples of `evaluation`."""
    value = writing.manifest.inputs.get("evaluation")
    return value is not None and bool(value["content_digest"] == evaluation.content_digest)


def paired_scores(challenger: Evaluation, champion: Evaluation, place: str) -> dict[str, Floats]:
    """Genre -> (documents, 4): characters, challenger's bits, champion's bits, group.

    Args:
        place: `--store` and `--channel` of a command that measures the champion again.

    Raises:
        DataError: they were not measured on the same documents in the same way; says what to run.
    """
    found = different_conditions(challenger, champion)
    if found:
        command = evaluate_command(champion.model.manifest.key, challenger.summary["conditions"], place)
        raise DataError(
            f"{challenger.output} (challenger) and {champion.output} (champion) were not measured alike: "
            f"{found}. Measure the champion again: {command}"
        )
    return joined_scores(challenger, champion)


def different_conditions(one: Evaluation, other: Evaluation) -> str:
    """In what two evaluations were measured otherwise, in words; "" where they can be compared."""
    mine, theirs = one.summary["conditions"], other.summary["conditions"]
    different = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
    return "; ".join(f"{_OPTIONS.get(n, n)}: {_short(n, mine)} and {_short(n, theirs)}" for n in different)


def evaluate_command(
    key: str, conditions: Mapping[str, str], place: str = "", *, is_champion: bool = True
) -> str:
    """Return how to measure the model `key` to compare it with what was measured under `conditions`.

    Args:
        place: `--store` and `--channel`; empty where the command becomes a part of an output, whose bytes do
            not say where it lies.
        is_champion: its evaluation gets a pointer of its own, and how it writes is not measured again.
    """
    stride = re.fullmatch(r"stride-(\d+)/.*", conditions.get("scoring", ""))
    number = conditions.get("documents_per_genre")
    more = (f" --stride {stride[1]}" if stride else "") + (f" --budget-documents {number}" if number else "")
    which = f"--split {conditions.get('split', 'test')}{more}{place and f' {place}'}"
    if not is_champion:
        return f"`yanmo evaluate --model train/{key} {which}`"
    return f"`yanmo evaluate --model train/{key} --documents none {which} --pointer champion_evaluation`"


def joined_scores(
    challenger: Evaluation, champion: Evaluation, prefix: str = "documents"
) -> dict[str, Floats]:
    """The scores of both in the files that begin with `prefix`, as `paired_scores` gives them.

    Raises:
        DataError: they hold different documents, or what is no finite number.
    """
    ours, others = challenger.documents(prefix), champion.documents(prefix)
    if not all(ours[name].equals(others[name]) for name in ("id", "genre", "characters")):
        raise DataError(
            f"{challenger.output} and {champion.output}: one evaluation set, but different documents; "
            "run evaluate for both with --force"
        )
    values = np.stack(
        [
            ours["characters"].to_numpy(),
            ours["bits"].to_numpy(),
            others["bits"].to_numpy(),
            _group_numbers(ours),
        ],
        axis=1,
    ).astype(np.float64)
    if not np.isfinite(values).all():
        raise DataError(
            f"{challenger.output} or {champion.output}: holds bits that are no finite number; {MAKE_AGAIN}"
        )
    genres = ours["genre"].to_numpy()
    scores = {genre: values[genres == genre] for genre in dict.fromkeys(genres.tolist())}
    empty = [genre for genre, each in scores.items() if not each[:, 0].sum() > 0]
    if empty:
        raise DataError(
            f"{challenger.output}: genre {', '.join(empty)} holds no characters; run `yanmo curate` again"
        )
    return scores


def _group_numbers(table: pa.Table) -> npt.NDArray[np.int64]:
    """A number for each group, and one for each document without a group."""
    ids = table["id"].to_pylist()
    groups = table["group"].to_pylist()
    names = [f"id {id}" if group is None else group for id, group in zip(ids, groups, strict=True)]
    return np.unique(names, return_inverse=True)[1]


_OPTIONS = {"documents_per_genre": "--budget-documents"}
"""Condition -> the option that sets it, where its name is another."""
_UNSET = {"documents_per_genre": "all"}


def _short(name: str, conditions: Mapping[str, Any]) -> str:
    text = str(conditions.get(name, _UNSET.get(name, "none")))
    return text[:12] + "..." if len(text) > 20 else text
