"""From bits of documents to the metrics of an evaluation, with intervals."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.bootstrap import generator_for, interval, resampled_sums, sums_of_groups
from yanmo.evaluate.documents.reading import Document, genre_order

Floats = npt.NDArray[np.float64]
FEW_DOCUMENTS = 10
"""With fewer, an interval is marked: a percentile bootstrap of so few documents or groups is too narrow."""
LENGTHS = (0, 32, 64, 128, 256, 512, 1024)
"""Where bins of a document's length begin, in characters."""
_DIGITS = 4


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are drawn."""

    draws: int
    seed: int


def source_group(source: str) -> str:
    """The first two parts of a source's path: `chinese-poetry/全唐诗/song` -> `chinese-poetry/全唐诗`."""
    return "/".join(source.split("/")[:2])


@dataclass(frozen=True)
class _Rows:
    """Bits and sizes of documents, parallel arrays."""

    bits: Floats
    characters: Floats
    tagged: Floats | None
    tokens: npt.NDArray[np.int32] | None
    group: npt.NDArray[np.int64]
    """Number of the group that a document belongs to (`groups_of`); one of its own where it has none."""

    @property
    def num_groups(self) -> int:
        """How many groups are drawn from."""
        return len(np.unique(self.group))

    def at(self, chosen: npt.NDArray[Any]) -> _Rows:
        """Some of the documents."""
        return _Rows(*(None if v is None else v[chosen] for v in vars(self).values()))  # type: ignore[arg-type]


def summarize(
    documents: Sequence[Document],
    bits: Floats,
    bootstrap: Bootstrap,
    tagged: Floats | None = None,
    tokens: npt.NDArray[np.int32] | None = None,
) -> dict[str, Any]:
    """Bits per character by genre, source and length, in total, and as the mean over genres.

    Args:
        bits: bits of each document.
        tagged: bits of each document with its genre tag; NaN where it has none.
        tokens: tokens of each document, for the perplexity of a token.

    Returns:
        {"genres": {name: metrics}, "mean": ..., "total": ..., "sources": ..., "lengths": ...}, JSON values
        only. The interval of the total draws documents within their genre, as that of the mean does; those
        of one group are drawn together (`groups_of`).
    """
    characters = np.array([d.characters for d in documents], np.float64)
    group = np.unique([d.group or f"id {d.id}" for d in documents], return_inverse=True)[1]
    rows = _Rows(bits, characters, tagged, tokens, group)
    of_genre = np.array([d.genre for d in documents])
    genres = {g: rows.at(of_genre == g) for g in sorted(set(of_genre.tolist()), key=genre_order)}
    sums = {g: _drawn(each, bootstrap, g) for g, each in genres.items()}
    metrics = {g: _metrics(each, sums[g]) for g, each in genres.items()}
    return {
        "genres": metrics,
        "mean": _mean(metrics.values(), np.mean([s[:, 0] / s[:, 1] for s in sums.values()], axis=0)),
        "total": _metrics(rows, np.sum(list(sums.values()), axis=0)),
        "sources": _grouped(rows, [source_group(d.source) for d in documents], bootstrap, "source"),
        "lengths": _grouped(rows, [length_bin(int(n)) for n in rows.characters], bootstrap, "length"),
    }


def length_bin(characters: int) -> str:
    """The bin of a document's length, `64-127`: powers of two from 32 to 1,024 characters."""
    at = bisect.bisect_right(LENGTHS, characters) - 1
    low = LENGTHS[at]
    return f"{low}-{LENGTHS[at + 1] - 1}" if at + 1 < len(LENGTHS) else f"{low}-"


def _drawn(rows: _Rows, bootstrap: Bootstrap, name: str) -> Floats:
    """Sums of bits and of characters of resampled groups of documents: (draws, 2)."""
    values = sums_of_groups(np.stack([rows.bits, rows.characters], 1), rows.group)
    return resampled_sums(values, bootstrap.draws, generator_for(bootstrap.seed, name))


def _metrics(rows: _Rows, sums: Floats) -> dict[str, Any]:
    bits, characters = float(rows.bits.sum()), float(rows.characters.sum())
    per_character = bits / characters
    result: dict[str, Any] = {
        "documents": len(rows.bits),
        "groups": rows.num_groups,
        "characters": int(characters),
        "bits_per_character": _round(per_character),
        "interval": _interval(sums[:, 0] / sums[:, 1]) if rows.num_groups > 1 else None,
        "few_documents": rows.num_groups < FEW_DOCUMENTS,
        "perplexity_per_character": _perplexity(per_character),
    }
    if rows.tokens is not None:
        result["tokens"] = int(rows.tokens.sum())
        result["perplexity_per_token"] = _perplexity(bits / result["tokens"])
    if rows.tagged is not None:
        whole = bool(np.isfinite(rows.tagged).all())
        result["with_tag"] = _round(rows.tagged.sum() / characters) if whole else None
    return result


def _mean(genres: Iterable[dict[str, Any]], drawn: Floats) -> dict[str, Any]:
    genres = list(genres)
    sure = all(g["interval"] for g in genres)
    mean = float(np.mean([g["bits_per_character"] for g in genres]))
    result: dict[str, Any] = {
        "bits_per_character": _round(mean),
        "interval": _interval(drawn) if sure else None,
        "few_documents": any(g["few_documents"] for g in genres),
        "perplexity_per_character": _perplexity(mean),
    }
    if "with_tag" in genres[0]:
        tagged = [g["with_tag"] for g in genres if g["with_tag"] is not None]
        result["with_tag"] = _round(np.mean(tagged)) if len(tagged) == len(genres) else None
    return result


def _grouped(rows: _Rows, names: Sequence[str], bootstrap: Bootstrap, what: str) -> dict[str, Any]:
    """Metrics by source or by length; bins of lengths are in the order of their numbers."""
    found = np.array(names)
    order = sorted(set(names), key=lambda n: int(n.split("-")[0]) if what == "length" else n)
    groups = {name: rows.at(found == name) for name in order}
    return {name: _metrics(each, _drawn(each, bootstrap, f"{what} {name}")) for name, each in groups.items()}


def _interval(drawn: Floats) -> list[float]:
    return [_round(v) for v in interval(drawn)]


def _perplexity(bits: float) -> float | None:
    """2^bits; None where that is beyond what a number can hold."""
    return _round(2.0**bits) if bits < 1000 else None


def _round(value: Any) -> float:
    return round(float(value), _DIGITS)
