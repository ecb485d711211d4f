"""The page that a person reads first: one HTML file, no script, nothing loaded from anywhere."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from yanmo.common.logs import human_bytes
from yanmo.common.stage_run import StageRun
from yanmo.promote.curve import read_curves, svg
from yanmo.promote.evaluation import Evaluation
from yanmo.promote.figures import baseline_lines, figures_table
from yanmo.promote.gate import Verdict
from yanmo.promote.lineage import Ancestor, Lineage, trace

_DATA_STAGES = ("curate", "balance", "tokenize", "train")
MOST_BYTES = 2_000_000
_MOST_SAMPLE_CHARACTERS = 2000


def write_page(
    run: StageRun,
    verdict: Verdict,
    challenger: Evaluation,
    champion: Evaluation | None,
    baselines: Mapping[str, Any] | None,
) -> str:
    """The page as HTML, below 2 MB."""
    lineage = trace(challenger.output)
    curves = read_curves(challenger.model)
    table = figures_table(challenger, champion, baselines)
    html: str = _template().render(
        verdict=verdict,
        challenger=challenger,
        champion=champion,
        channel=run.options.channel,
        table=table,
        against_baselines=baseline_lines(table, baselines),
        conditions=challenger.summary["conditions"],
        sources=challenger.summary["sources"],
        samples=_samples(challenger.samples),
        sample_settings=challenger.samples["settings"],
        curve=Markup(svg(curves)),  # numbers and our own words only
        last_valid=curves.last_valid,
        counts=_counts(lineage),
        stages=[_stage(a) for a in lineage.ancestors],
        lineage=lineage,
        promote_options=_options(run),
        made_at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    assert len(html.encode()) < MOST_BYTES, "samples and lineage are bounded, so this page cannot grow"
    return html


def _template() -> Any:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["bits"] = lambda value: "–" if value is None else f"{value:.3f}"
    return environment.get_template("page.html.jinja")


def _samples(samples: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    shown = {}
    for genre, texts in samples["genres"].items():
        shown[genre] = [{**t, "text": t["text"][:_MOST_SAMPLE_CHARACTERS]} for t in texts[:12]]
    return shown


def _options(run: StageRun) -> dict[str, Any]:
    names = ("min_gain", "max_genre_loss", "level", "draws", "seed")
    return {name: getattr(run.options, name) for name in names}


def _stage(ancestor: Ancestor) -> dict[str, Any]:
    manifest = ancestor.output.manifest
    return {
        "stage": manifest.stage,
        "key": manifest.key,
        "digest": manifest.content_digest,
        "made": manifest.created_at.replace("T", " ").removesuffix("+00:00"),
        "bytes": human_bytes(sum(f.bytes for f in manifest.files)),
        "inputs": ancestor.inputs,
        "options": {**manifest.options, **manifest.execution},
        "command": ancestor.command,
    }


def _counts(lineage: Lineage) -> list[dict[str, Any]]:
    """The counts in the manifests of the stages that made the data, as tables."""
    tables = []
    for stage in _DATA_STAGES:
        output = lineage.of_stage(stage)
        if output is not None and output.manifest.counts:
            tables.append({"stage": stage, "tables": count_tables(output.manifest.counts)})
    return tables


def count_tables(counts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Nested counts as tables: the innermost names are columns, what leads to them is the row.

    Rows of equal columns share a table: {"documents": {"train": {"诗": 3, "词": 1}}} is a row
    `documents train` below the columns 诗 and 词.
    """
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for path, value in _leaves(counts):
        rows.setdefault(path[:-1], {})[path[-1]] = value
    tables: dict[tuple[str, ...], list[tuple[str, list[Any]]]] = {}
    for path, values in rows.items():
        tables.setdefault(tuple(values), []).append((" ".join(path), [_shown(v) for v in values.values()]))
    return [{"columns": columns, "rows": lines} for columns, lines in tables.items()]


def _leaves(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], Any]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _leaves(inner, (*path, str(name)))
        else:
            yield (*path, str(name)), inner


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)[:200]
