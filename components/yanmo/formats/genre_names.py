"""Which texts can be the name of a genre, and ASCII spellings of some. Standard library only."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from yanmo.common.words import plural

RESERVED = ("mean", "all", "*")
"""Names that tables, options and records of all genres together use themselves."""
MAX_CHARACTERS = 100
GENRE_ALIASES = {"shi": "诗", "ci": "词", "wen": "文", "fu": "赋", "qu": "曲", "shuo": "说"}
"""ASCII spellings of genres, for options: KFP's database refuses other characters."""


def genre_problem(name: str) -> str:
    """Return why `name` cannot be a genre, as the end of a sentence; "" where it can."""
    if name in RESERVED:
        return f"{name!r} is what tables and options call all genres together; give it another name"
    if len(name) > MAX_CHARACTERS:
        return f"it has {plural(len(name), 'character')}, expected at most {MAX_CHARACTERS}"
    if not name.isprintable():
        return f"{name!r} holds characters that cannot be seen; write it without them"
    return ""


_PLAIN = re.compile(r"(?!u[0-9a-f]{4,6}(_|$))[a-z][a-z0-9_]*")
_LONGEST = 60
_ALIAS_OF = {genre: alias for alias, genre in GENRE_ALIASES.items()}


def ascii_name(genre: str) -> str:
    """Return a name for `genre` in KFP's database: the same in every run, and no other genre's.

    Its alias, or itself, or the code points of its characters: `u5c0f_u54c1` for 小品.
    """
    if genre in _ALIAS_OF:
        return _ALIAS_OF[genre]
    is_plain = _PLAIN.fullmatch(genre) and genre not in GENRE_ALIASES and genre not in RESERVED
    name = genre if is_plain else "_".join(f"u{ord(character):04x}" for character in genre)
    if len(name) <= _LONGEST:
        return name
    return (
        f"{name[: _LONGEST - 17]}-{hashlib.sha256(genre.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    )


_DIGITS = 4
"""Decimals of bits per character: below the noise of any seed."""


def bits_metrics(mean: float | None, genres: Mapping[str, float | None]) -> dict[str, float]:
    """Bits per character for KFP's UI: the mean, and of each genre that could be measured.

    Its page "Compare runs" has a row for each name and shows neither a unit nor a help: the name must say
    all, and be the same in every run.
    """
    values = {"mean": mean, **{ascii_name(genre): bits for genre, bits in genres.items()}}
    return {f"bits_per_character_{n}": round(v, _DIGITS) for n, v in values.items() if v is not None}
