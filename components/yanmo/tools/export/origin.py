"""What a model learned from, read from its lineage: texts, sources, licences."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.errors import DataError
from yanmo.formats.licenses import UNKNOWN
from yanmo.formats.stage_cost import StageCost, stage_cost
from yanmo.formats.training_text import caches_behind, documents_behind
from yanmo.store.output import Output
from yanmo.tools.evaluations import Evaluation, evaluation_of

log = logging.getLogger(__name__)
Source = tuple[str, str]
"""Where texts are from, and under which licence."""


@dataclass(frozen=True)
class Learned:
    """One training behind a model, and the text of it."""

    model: Output
    made_of: list[Output]
    """Token cache, then the documents behind it, back to the curated ones."""
    sources: Counter[Source]
    """Training documents by source and licence; by licence alone (source "") where the tables are gone."""
    files: list[dict[str, Any]]
    """The files that `curate` read: name, sha256, bytes."""
    cost: StageCost

    @property
    def licenses(self) -> Counter[str]:
        """Training documents by licence."""
        found: Counter[str] = Counter()
        for (_, license), number in self.sources.items():
            found[license] += number
        return found


@dataclass(frozen=True)
class Origin:
    """All that is known of where a model comes from."""

    name: str
    output: Output | None = None
    """None of a folder, of which nothing is known."""
    learned: list[Learned] = field(default_factory=list)
    """The model's own training first, then those of the models that it started from."""
    imported: list[str] = field(default_factory=list)
    """Those among them that were imported, of whose text nothing is known."""
    evaluation: Evaluation | None = None


def origin_of(output: Output) -> Origin:
    """The lineage of a model in a store, as far as the store still has it."""
    trainings: dict[str, tuple[Output, list[Output]]] = {}
    for model, cache in caches_behind(output):
        assert model is not None
        chain = trainings.setdefault(model.content_digest, (model, []))[1]
        chain += [cache, *documents_behind(cache)]
    learned = [
        Learned(model, chain, _sources(chain), _files(chain), stage_cost(model))
        for model, chain in trainings.values()
    ]
    return Origin(
        f"{output}", output, learned, imported=imported_behind(output), evaluation=evaluation_of(output)
    )


def imported_behind(output: Output) -> list[str]:
    """The models that were imported, of this one and those that it started from."""
    found: list[str] = []
    model: Output | None = output
    while model is not None:
        if model.manifest.metadata.get("imported"):
            found.append(f"{model}")
        try:
            model = model.input("model")
        except DataError as error:
            log.warning("%s: what it started from is not known any more: %s", model, error)
            return found
    return found


def _sources(chain: Sequence[Output]) -> Counter[Source]:
    """Training documents by source and licence: `curate` says where each text is from."""
    curated = next((one for one in reversed(chain) if one.manifest.stage == "curate"), None)
    if curated is None:
        return Counter()
    try:
        return _counted(curated)
    except (DataError, pa.ArrowInvalid, KeyError) as error:
        log.warning("%s: its sources are not known any more: %s", curated, error)
        licenses = curated.manifest.metadata.get("licenses") or {}
        return Counter({("", str(name)): int(number) for name, number in licenses.items()})


def _counted(curated: Output) -> Counter[Source]:
    found: Counter[Source] = Counter()
    for entry in curated.entries("train-*.parquet"):
        file = pq.ParquetFile(curated.path(entry.path))
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=["source", "license"])
            plain = pa.table({name: table[name].cast(pa.string()) for name in table.column_names})
            counts = plain.group_by(["source", "license"]).aggregate([([], "count_all")])
            for row in counts.to_pylist():
                found[row["source"] or "", row["license"] or UNKNOWN] += row["count_all"]
    return found


def _files(chain: Sequence[Output]) -> list[dict[str, Any]]:
    given = [one.manifest.inputs.get("sources") or {} for one in chain]
    return [file for each in given for file in each.get("files", []) if isinstance(file, dict)]
