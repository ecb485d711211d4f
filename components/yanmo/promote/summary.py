"""What a person reads at the end of a run: table, verdict, three verses. Plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yanmo.common.bootstrap import generator_for
from yanmo.common.text_table import text_table
from yanmo.promote.evaluation import Evaluation
from yanmo.promote.figures import FiguresTable, baseline_lines, figures_table
from yanmo.promote.gate import Verdict

_ALWAYS_SHOWN = ("诗", "词")
_VERSES = 3


def summary_text(
    verdict: Verdict,
    challenger: Evaluation,
    champion: Evaluation | None,
    baselines: Mapping[str, Any] | None,
    seed: int,
) -> str:
    """The end of a run as text of about 40 lines."""
    table = figures_table(challenger, champion, baselines)
    split = challenger.summary["conditions"]["split"]
    lines = [f"Bits per character on the {split} split (fewer is better)", "", *_table_lines(table), ""]
    lines += _notes(table)
    lines += [*baseline_lines(table, baselines), verdict.sentence.en, ""]
    for genre, text in chosen_verses(challenger.samples, seed):
        lines += [f"{genre} (generated)", *(f"    {line}" for line in text.splitlines()), ""]
    return "\n".join(lines)


def _table_lines(table: FiguresTable) -> list[str]:
    rows = [["genre", *table.columns]]
    for name, cells in table.rows.items():
        rows.append([name, *("-" if c.value is None else f"{c.value:.3f}" for c in cells)])
    return text_table(rows)


def _notes(table: FiguresTable) -> list[str]:
    notes = [f"{name}: {cell.note}" for name, cells in table.rows.items() for cell in cells[:1] if cell.note]
    return [*notes, ""] if notes else []


def chosen_verses(samples: Mapping[str, Any], seed: int) -> list[tuple[str, str]]:
    """Three generated texts: 诗, 词 and one of another genre, each drawn by seed and not by hand.

    Genres without samples are left out; where 诗 or 词 are missing, others take their place.
    """
    texts = {genre: found for genre, found in samples["genres"].items() if found}
    draw = generator_for(seed, "verses")
    rest = [genre for genre in texts if genre not in _ALWAYS_SHOWN]
    shown = [genre for genre in _ALWAYS_SHOWN if genre in texts]
    others = [rest[i] for i in draw.permutation(len(rest))][: _VERSES - len(shown)]
    return [(g, str(texts[g][int(draw.integers(len(texts[g])))]["text"])) for g in [*shown, *others]]
