"""From bits of documents to the figures of an evaluation, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.bootstrap import generator_for, interval, resampled_sums
from yanmo.evaluate.documents import Document, genre_order

Floats = npt.NDArray[np.float64]
FEW_DOCUMENTS = 10
"""Below this an interval is marked: a percentile bootstrap of so few documents is too narrow."""
_DIGITS = 4


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are drawn."""

    draws: int
    seed: int


def source_group(source: str) -> str:
    """The first two parts of a source's path: `chinese-poetry/全唐诗/song` -> `chinese-poetry/全唐诗`."""
    return "/".join(source.split("/")[:2])


def summarize(
    documents: Sequence[Document], bits: Floats, bootstrap: Bootstrap, tagged: Floats | None = None
) -> dict[str, Any]:
    """Bits per character by genre and source, in total, and as the mean over genres.

    Args:
        bits: of each document.
        tagged: of each document behind its genre tag; NaN where it has none.

    Returns:
        {"genres": {name: figures}, "mean": ..., "total": ..., "sources": ...}, JSON values only.
    """
    characters = np.array([d.characters for d in documents], np.float64)
    genres = sorted({d.genre for d in documents}, key=genre_order)
    rows = {g: np.array([i for i, d in enumerate(documents) if d.genre == g]) for g in genres}
    draws = {g: _drawn(bits[rows[g]], characters[rows[g]], bootstrap, g) for g in genres}
    figures = {
        g: _figures(bits[r], characters[r], draws[g], None if tagged is None else tagged[r])
        for g, r in rows.items()
    }
    return {
        "genres": figures,
        "mean": _mean(figures.values(), np.mean(list(draws.values()), axis=0)),
        "total": _figures(bits, characters, None, tagged),
        "sources": _by_source(documents, bits, characters),
    }


def _drawn(bits: Floats, characters: Floats, bootstrap: Bootstrap, genre: str) -> Floats:
    """Bits per character of resampled documents, one per draw."""
    sums = resampled_sums(
        np.stack([bits, characters], 1), bootstrap.draws, generator_for(bootstrap.seed, genre)
    )
    return np.asarray(sums[:, 0] / sums[:, 1])


def _figures(bits: Floats, characters: Floats, drawn: Floats | None, tagged: Floats | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "documents": len(bits),
        "characters": int(characters.sum()),
        "bits_per_character": _round(bits.sum() / characters.sum()),
    }
    if drawn is not None:
        few = len(bits) < FEW_DOCUMENTS
        result["interval"] = [_round(v) for v in interval(drawn)] if len(bits) > 1 else None
        result["few_documents"] = few
    if tagged is not None:
        whole = bool(np.isfinite(tagged).all())
        result["with_tag"] = _round(tagged.sum() / characters.sum()) if whole else None
    return result


def _mean(genres: Iterable[dict[str, Any]], drawn: Floats) -> dict[str, Any]:
    genres = list(genres)
    sure = all(g["interval"] for g in genres)
    result: dict[str, Any] = {
        "bits_per_character": _round(np.mean([g["bits_per_character"] for g in genres])),
        "interval": [_round(v) for v in interval(drawn)] if sure else None,
        "few_documents": any(g["few_documents"] for g in genres),
    }
    if "with_tag" in genres[0]:
        tagged = [g["with_tag"] for g in genres if g["with_tag"] is not None]
        result["with_tag"] = _round(np.mean(tagged)) if len(tagged) == len(genres) else None
    return result


def _by_source(documents: Sequence[Document], bits: Floats, characters: Floats) -> dict[str, Any]:
    names = np.array([source_group(d.source) for d in documents])
    chosen = {name: names == name for name in sorted(set(names.tolist()))}
    return {name: _figures(bits[at], characters[at], None, None) for name, at in chosen.items()}


def _round(value: Any) -> float:
    return round(float(value), _DIGITS)
