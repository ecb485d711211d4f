"""The outputs that an evaluation rests on, back to the text of its model, and the tables of its data."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from yanmo.common.errors import DataError
from yanmo.store.manifest import Reference
from yanmo.store.output import Output, open_reference, read_json

log = logging.getLogger(__name__)
Counts = Mapping[str, Any]


@dataclass
class Lineage:
    """All of them, nearest first, each once."""

    outputs: list[Output] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """What could not be read any more, in words."""

    def of_stage(self, stage: str) -> Output | None:
        """Return the nearest output made by `stage`."""
        return next((output for output in self.outputs if output.manifest.stage == stage), None)


def trace(output: Output) -> Lineage:
    """Return the lineage of an output, breadth first; a lost ancestor is noted and does not stop it.

    A model that a training went on from is left out, with all that it rests on: it has a page of its own, and
    of a model that goes on every night the others would fill this one.
    """
    lineage, seen, waiting = Lineage(), set[tuple[str, str]](), [output]
    while waiting:
        output = waiting.pop(0)
        manifest = output.manifest
        if (manifest.stage, manifest.key) in seen:
            continue
        seen.add((manifest.stage, manifest.key))
        lineage.outputs.append(output)
        inputs = {**manifest.inputs, **manifest.references}
        if manifest.stage == "train":
            inputs.pop("model", None)
        for name, value in inputs.items():
            if not value or "manifest_uri" not in value:
                continue
            try:
                waiting.append(open_reference(output.store, Reference(**value)))
            except (DataError, TypeError) as error:
                lineage.lost.append(f"{output}: {name}: {error}")
    return lineage


def data_report(lineage: Lineage) -> dict[str, Any]:
    """{"curate": ..., "balance": ..., "tokenize": ...}; None for a stage that is not in the lineage."""
    found = {}
    for stage, read in (("curate", _curate), ("balance", _balance), ("tokenize", _tokenize)):
        output = lineage.of_stage(stage)
        found[stage] = read(output) if output else None
    return found


def _report(output: Output) -> dict[str, Any]:
    try:
        return read_json(output, "report.json")
    except (DataError, ValueError) as error:
        log.warning("%s: no report: %s", output, error)
        return {}


def _curate(output: Output) -> dict[str, Any]:
    """Documents read, dropped by reason and kept, by genre."""
    report, counts = _report(output), output.manifest.counts
    train, characters = _split(counts, "documents"), _split(counts, "characters")
    read = {genre: _documents(value) for genre, value in report.get("read", {}).items()}
    dropped = {
        reason: sum(_documents(v) for v in genres.values())
        for reason, genres in report.get("dropped", {}).items()
    }
    genres = sorted({*read, *train}, key=lambda g: -characters.get(g, 0))
    return {
        "genres": {
            g: {"read": read.get(g), "documents": train.get(g, 0), "characters": characters.get(g, 0)}
            for g in genres
        },
        "dropped": dict(sorted(dropped.items(), key=lambda item: -item[1])),
        "licenses": output.manifest.metadata.get("licenses", {}),
        "text_form": output.manifest.metadata.get("text_form", ""),
    }


def _balance(output: Output) -> dict[str, Any]:
    """Characters before and after, and how often each text is seen, by class."""
    classes = {}
    for name, value in list(_report(output).get("classes", {}).items()):
        before, after = value.get("before", {}), value.get("after", {})
        classes[name] = {
            "before": before.get("characters"),
            "after": after.get("characters"),
            "share_before": before.get("shares", {}).get("characters"),
            "share_after": after.get("shares", {}).get("characters"),
            "epochs": value.get("epochs"),
        }
    if not classes:
        after = _split(output.manifest.counts, "characters")
        classes = {g: {"before": None, "after": n, "epochs": None} for g, n in after.items()}
    return {"classes": classes, "augmentation": _report(output).get("augmentation")}


def _tokenize(output: Output) -> dict[str, Any]:
    """Tokens and characters of the training split, by genre."""
    tokens, characters = (
        _split(output.manifest.counts, "tokens"),
        _split(output.manifest.counts, "characters"),
    )
    names = sorted(tokens, key=lambda g: -tokens[g])
    metadata = output.manifest.metadata
    agreement = metadata.get("jieba_agreement")
    return {
        "genres": {g: {"tokens": tokens[g], "characters": characters.get(g, 0)} for g in names},
        "vocab_size": metadata.get("vocab_size"),
        "unused_ids": metadata.get("unused_ids"),
        "byte_token_share": metadata.get("byte_token_share"),
        "jieba_boundary_recall": agreement.get("boundary_recall") if isinstance(agreement, Mapping) else None,
    }


def _split(counts: Counts, name: str) -> dict[str, int]:
    """Genre -> count of the training split."""
    found = counts.get(name, {})
    train = found.get("train", {}) if isinstance(found, Mapping) else {}
    return dict(train) if isinstance(train, Mapping) else {}


def _documents(value: Any) -> int:
    return int(value["documents"]) if isinstance(value, Mapping) else int(value)
