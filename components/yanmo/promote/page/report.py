"""Everything that the page shows, as one JSON document: report.json, described by report.schema.json.

The page is made from this and from nothing else, so that a number on it can be read by a script as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from yanmo.promote.gate.base import BASE
from yanmo.promote.gate.evaluation import Evaluation
from yanmo.promote.gate.guards import guard_metrics
from yanmo.promote.gate.verdict import Verdict
from yanmo.promote.page.lineage import data_report, trace
from yanmo.promote.page.tasks import task_rows
from yanmo.promote.page.training import training_report
from yanmo.store.output import Output
from yanmo.store.record import utc_now

_SCHEMA = "yanmo.report/9"
_MOST_SAMPLES = 4
"""Samples of each genre; evaluate looks for the nearest training text of as many."""
_MOST_SAMPLE_CHARACTERS = 2000


def make_report(
    verdict: Verdict,
    challenger: Evaluation,
    champion: Evaluation | None,
    baselines: Mapping[str, Any] | None,
    *,
    base: Evaluation | None = None,
    channel: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The document.

    Args:
        baselines: summary.json of the baselines, or None.
        base: what the challenger was tuned from, measured in the same way.
        options: options of promote itself.
    """
    lineage = trace(challenger.output)
    training = training_report(challenger.model)
    return {
        "schema": _SCHEMA,
        "made_at": utc_now(),
        "channel": channel,
        "verdict": {"promote": verdict.promote, **asdict(verdict)},
        "challenger": _named(challenger.model),
        "champion": _named(champion.model) if champion else None,
        "conditions": challenger.summary["conditions"],
        "bits_per_character": bits_table(challenger, champion, baselines),
        "guards": guard_metrics(challenger),
        "base": challenger.section(BASE),
        "tasks": task_rows(challenger, champion, base),
        "verse": challenger.section("verse"),
        "memorization": challenger.section("memorization"),
        "contamination": challenger.section("contamination"),
        "samples": _samples(challenger.samples),
        "training": training,
        "data": data_report(lineage),
        "options": dict(options),
        "stages": [_stage(output) for output in lineage.outputs],
        "lost": lineage.lost,
    }


def _named(model: Output) -> dict[str, Any]:
    return {"name": str(model), "key": model.manifest.key, "content_digest": model.content_digest}


def bits_table(
    challenger: Evaluation, champion: Evaluation | None, baselines: Mapping[str, Any] | None
) -> dict[str, Any]:
    """{"columns": [{"id", "title", "rows": {genre: cell}, "mean": cell}], "documents": {genre: counts}}.

    A cell is {"value", "interval", "few_documents"}. The challenger is the first column; columns without
    any value are left out. The mean over genres is a field of its own, as a genre may have any name. A column
    without some genre (baselines leave chats out) has no mean: it could not be compared with the others.
    """
    parts: list[tuple[str, str, Mapping[str, Any], str]] = [
        ("challenger", "challenger", challenger.summary, "bits_per_character"),
        ("with_tag", "with genre tag", challenger.summary, "with_tag"),
    ]
    if champion:
        parts.insert(1, ("champion", "champion", champion.summary, "bits_per_character"))
    for name, baseline in (baselines or {}).get("baselines", {}).items():
        parts.append((name, baseline.get("title", name), baseline, "bits_per_character"))
    genres = challenger.summary["genres"]
    columns = [_column(*part, genres) for part in parts]
    return {
        "columns": [c for c in columns if any(cell["value"] is not None for cell in _cells(c))],
        "documents": {g: {n: v[n] for n in ("documents", "characters")} for g, v in genres.items()},
    }


def _cells(column: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All cells of a column, the mean last."""
    return [*column["rows"].values(), column["mean"]]


def _column(
    name: str, title: str, part: Mapping[str, Any], field: str, genres: Iterable[str]
) -> dict[str, Any]:
    found = part.get("genres", {})
    rows = {genre: _cell(found.get(genre, {}), field) for genre in genres}
    whole = all(cell["value"] is not None for cell in rows.values())
    return {
        "id": name,
        "title": title,
        "rows": rows,
        "mean": _cell(part.get("mean", {}) if whole else {}, field),
    }


def _cell(values: Mapping[str, Any], field: str) -> dict[str, Any]:
    interval = values.get("interval") if field == "bits_per_character" else None
    few = bool(values.get("few_documents")) and interval is not None
    return {"value": values.get(field), "interval": interval, "few_documents": few}


def _samples(samples: Mapping[str, Any]) -> dict[str, Any]:
    genres = {
        genre: [_sample(text) for text in texts[:_MOST_SAMPLES]] for genre, texts in samples["genres"].items()
    }
    return {"settings": samples["settings"], "genres": genres}


def _sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A sample as it is shown: without the character whose bytes it was cut between."""
    text = str(sample["text"])
    text = text if sample["ended"] else text.rstrip("\ufffd")
    return {**sample, "text": text[:_MOST_SAMPLE_CHARACTERS]}


def _stage(output: Output) -> dict[str, Any]:
    manifest = output.manifest
    return {
        "stage": manifest.stage,
        "key": manifest.key,
        "content_digest": manifest.content_digest,
        "made_at": manifest.created_at,
        "bytes": sum(file.bytes for file in manifest.files),
        "options": {**manifest.options, **manifest.execution},
    }


def baseline_wins(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each baseline: in how many genres, and by how many bits on average, the challenger needs fewer.

    Returns:
        [{"id", "title", "won", "genres", "mean_gain"}], of the genres that the baseline has; models are left
        out.
    """
    first = table["columns"][0]
    wins = []
    for column in table["columns"]:
        if column["id"] in ("challenger", "champion", "with_tag"):
            continue
        genres = {g: c["value"] for g, c in column["rows"].items() if c["value"] is not None}
        won = sum(first["rows"][g]["value"] < value for g, value in genres.items())
        gain = sum(v - first["rows"][g]["value"] for g, v in genres.items()) / len(genres) if genres else None
        shown = {"id": column["id"], "title": column["title"], "won": won, "genres": len(genres)}
        wins.append({**shown, "mean_gain": gain})
    return wins
