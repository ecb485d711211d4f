"""What a person reads at the end of a run: table, verdict, three verses. Plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yanmo.common.aligned_table import short_table
from yanmo.common.bootstrap import generator_for
from yanmo.common.pages.html import cut
from yanmo.promote.gate.headline import conditions, headline
from yanmo.promote.gate.verdict import Words
from yanmo.promote.page.names import called
from yanmo.promote.page.report import baseline_wins

_ALWAYS_SHOWN = ("诗", "词")
_VERSES = 3
_DIALOGUES = 4
_MOST_SHOWN = 120
"""Characters of a question or an answer."""
_HEADLINES = ("accuracy", "f1")


def summary_text(report: Mapping[str, Any], seed: int) -> str:
    """The end of a run as text of about 40 lines.

    Args:
        report: report.json.
        seed: draws the verses.
    """
    table, split = report["bits_per_character"], report["conditions"]["split"]
    lines = [f"Bits per character on the {split} split (lower is better)", "", *_table_lines(table), ""]
    lines += _notes(table)
    lines += base_lines(report)
    lines += baseline_lines(table)
    follow = conditions(Words(**report["verdict"]["sentence"]))
    lines += ["", headline(report["verdict"]).en, follow.en, *_margin(report["verdict"]), ""]
    lines += dialogue_lines(report)
    for genre, text in chosen_verses(report["samples"], seed):
        lines += [f"{genre} (generated)", *(f"    {line}" for line in text.splitlines()), ""]
    return "\n".join(lines)


def base_lines(report: Mapping[str, Any]) -> list[str]:
    """Say what tuning gained and cost beside the model that it started from; nothing where none was."""
    base, tasks = report["base"], report["tasks"]
    if not base:
        return []
    rows = [["tuning", "before", "after", "95 % interval of the change", "by chance"]]
    for name, what in (("answers", "bits of answers"), ("forgotten", "bits of texts")):
        change = base[name]
        if change:
            within = " to ".join(f"{bound:+.3f}" for bound in change["interval"] or ())
            rows.append([what, f"{change['base']:.3f}", f"{change['tuned']:.3f}", within or "-", "-"])
    for row in tasks["rows"] if tasks else ():
        if row["measure"] in _HEADLINES:
            values = [_percent(row[name]) for name in ("base", "value", "chance")]
            within = "after: " + " to ".join(_percent(bound) for bound in row["interval"] or ())
            rows.append([called(f"task_{row['task']}").en, values[0], values[1], within, values[2]])
    return [*short_table(rows), ""]


def dialogue_lines(report: Mapping[str, Any]) -> list[str]:
    """Held-out questions and their answers, the first by id; nothing where no chat was answered."""
    answers = report["tasks"]["answers"][:_DIALOGUES] if report["tasks"] else []
    lines = ["Answers to held-out questions, the first by id: nobody chose them", ""] if answers else []
    for each in answers:
        said = [("asked", each["asked"]), ("answer", each["answer"])]
        said += [("before", each["base"])] if each["base"] is not None else []
        for whose, text in said:
            first, *rest = cut(text, _MOST_SHOWN).splitlines() or ["(nothing)"]
            lines += [f"{whose:<8}{first}", *(f"        {line}" for line in rest)]
        lines.append("")
    return lines


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _margin(verdict: Mapping[str, Any]) -> list[str]:
    """The margin and where it comes from, where something was compared."""
    asked = [check["rule"]["en"] for check in verdict["checks"] if check["name"] == "large_enough"]
    return [f"Asked for: a {rule}." for rule in asked]


def _table_lines(table: Mapping[str, Any]) -> list[str]:
    columns = table["columns"]
    rows = [["genre", *(c["title"] for c in columns)]]
    for genre in columns[0]["rows"]:
        rows.append([genre, *(_bits(c["rows"][genre]) for c in columns)])
    rows.append(["mean", *(_bits(c["mean"]) for c in columns)])
    return short_table(rows)


def _bits(cell: Mapping[str, Any]) -> str:
    return "-" if cell["value"] is None else f"{cell['value']:.3f}"


def _notes(table: Mapping[str, Any]) -> list[str]:
    own = table["columns"][0]
    few = [name for name, cell in own["rows"].items() if cell["few_documents"]]
    few += ["mean"] if own["mean"]["few_documents"] else []
    notes = [f"{name}: few documents: the interval is too narrow" for name in few]
    return [*notes, ""] if notes else []


def baseline_lines(table: Mapping[str, Any]) -> list[str]:
    """One sentence per baseline: in how many genres the challenger needs fewer bits."""
    return [
        f"Against {w['title']}: fewer bits in {w['won']} of {w['genres']} genres, "
        f"{'fewer' if (w['mean_gain'] or 0) > 0 else 'more'} on average."
        for w in baseline_wins(table)
    ]


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
