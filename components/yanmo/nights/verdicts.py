"""What the index says of a night that has a verdict, from its report.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from yanmo.common.errors import DataError
from yanmo.nights.night import LINES_OF_A_VERSE, MOST_OF_A_VERSE
from yanmo.store.objects import ObjectStore
from yanmo.store.output import find_output, read_json


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


def found_in(store: ObjectStore, key: str) -> dict[str, Any] | None:
    """The same of the verdict that is committed under `key`; None where there is none that can be read."""
    try:
        output = find_output(store, "promote", key)
        if output is None:
            return None
        report = read_json(output, "report.json")
        genres = report["samples"]["genres"]
        verses = [(genre, str(texts[0]["text"])) for genre, texts in genres.items() if texts]
        return found_of(report, verses)
    except (DataError, KeyError, TypeError, IndexError, AttributeError):
        return None
