"""What the index says of a night that has a verdict, from its report.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from yanmo.nights.night import LINES_OF_A_VERSE, MOST_OF_A_VERSE


def found_of(report: Mapping[str, Any], verses: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The fields of a `Row` that a verdict knows, from report.json.

    Args:
        verses: genre and text of samples, drawn by seed; the first one that is not empty is shown.
    """
    verdict = report["verdict"]
    genre, text = next(((g, t) for g, t in verses if t.strip()), ("", ""))
    lines = [line for line in text.split("\n") if line.strip()][:LINES_OF_A_VERSE]
    return {
        "state": str(verdict["outcome"]),
        "sentence": dict(verdict["sentence"]),
        "bits": report["bits_per_character"]["columns"][0]["mean"]["value"],
        "gain": (verdict.get("gain") or {}).get("share"),
        "verse": "\n".join(lines)[:MOST_OF_A_VERSE],
        "genre": genre,
    }
