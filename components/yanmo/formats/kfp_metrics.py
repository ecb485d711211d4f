"""Names of numbers that KFP's UI shows. Standard library only.

KFP keeps them as properties of an artifact, in a database that may refuse other characters than ASCII. Its
page "Compare runs" has a row for each name and a column for each artifact of the type Metrics, and shows
neither a unit nor a help: the name must say all, and be the same in every run.
"""

from __future__ import annotations

from collections.abc import Mapping

from yanmo.formats.genre_names import ascii_name

_DIGITS = 4
"""Decimals of bits per character: below the noise of any seed."""


def bits_metrics(mean: float | None, genres: Mapping[str, float | None]) -> dict[str, float]:
    """Bits per character: the mean over genres, and of each genre; without what could not be measured."""
    values = {"mean": mean, **{ascii_name(genre): bits for genre, bits in genres.items()}}
    return {f"bits_per_character_{n}": round(v, _DIGITS) for n, v in values.items() if v is not None}
