"""The table of bits per character that page and summary share: genres x models and baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo.promote.evaluation import Evaluation


@dataclass(frozen=True)
class Cell:
    """One figure; `interval` is None where there is none to give."""

    value: float | None
    interval: tuple[float, float] | None = None
    note: str = ""


@dataclass(frozen=True)
class FiguresTable:
    """Rows are genres and, last, their mean; the first column is the challenger."""

    columns: tuple[str, ...]
    rows: dict[str, tuple[Cell, ...]]
    documents: dict[str, str]
    """Row -> how many documents and characters it rests on."""


def figures_table(
    challenger: Evaluation, champion: Evaluation | None, baselines: Mapping[str, Any] | None
) -> FiguresTable:
    """The table, with as many columns as there is something to show."""
    parts: list[tuple[str, Mapping[str, Any], str]] = [
        ("challenger", challenger.summary, "bits_per_character"),
        ("with tag", challenger.summary, "with_tag"),
    ]
    if champion:
        parts.insert(1, ("champion", champion.summary, "bits_per_character"))
    for baseline in (baselines or {}).get("baselines", {}).values():
        parts.append((baseline["title"], baseline, "bits_per_character"))
    names = [*challenger.summary["genres"], "mean"]
    rows = {name: tuple(_cell(part, name, field) for _, part, field in parts) for name in names}
    kept = [i for i in range(len(parts)) if any(row[i].value is not None for row in rows.values())]
    documents = {
        name: f"{g['documents']:,} texts, {g['characters']:,} characters"
        for name, g in challenger.summary["genres"].items()
    }
    return FiguresTable(
        tuple(parts[i][0] for i in kept),
        {name: tuple(row[i] for i in kept) for name, row in rows.items()},
        {**documents, "mean": f"mean of {len(documents)} genres"},
    )


def _cell(part: Mapping[str, Any], name: str, field: str) -> Cell:
    figures = part["mean"] if name == "mean" else part["genres"].get(name, {})
    interval = figures.get("interval") if field == "bits_per_character" else None
    few = "few documents: the interval is too narrow" if figures.get("few_documents") else ""
    return Cell(figures.get(field), tuple(interval) if interval else None, few if interval else "")


def baseline_lines(table: FiguresTable, baselines: Mapping[str, Any] | None) -> list[str]:
    """One sentence per baseline: in how many genres the challenger needs fewer bits."""
    lines = []
    genres = [name for name in table.rows if name != "mean"]
    for baseline in (baselines or {}).get("baselines", {}).values():
        column = table.columns.index(baseline["title"])
        won = [name for name in genres if _fewer(table.rows[name], column)]
        mean = "fewer" if _fewer(table.rows["mean"], column) else "more"
        lines.append(
            f"Against {baseline['title']}: fewer bits in {len(won)} of {len(genres)} genres, {mean} on average."
        )
    return lines


def _fewer(row: tuple[Cell, ...], column: int) -> bool:
    mine, other = row[0].value, row[column].value
    return mine is not None and other is not None and mine < other
