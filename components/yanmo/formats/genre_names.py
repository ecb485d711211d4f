"""Which texts can be the name of a genre, and ASCII spellings of some. Standard library only."""

from __future__ import annotations

RESERVED = ("mean", "all", "*")
"""Names that tables, options and records of all genres together use themselves."""
MAX_CHARACTERS = 100
GENRE_ALIASES = {"shi": "诗", "ci": "词", "wen": "文", "fu": "赋", "qu": "曲", "shuo": "说"}
"""ASCII spellings of genres, for options: KFP's database refuses other characters."""


def genre_problem(name: str) -> str:
    """Why `name` cannot be a genre, as the end of a sentence; "" where it can."""
    if name in RESERVED:
        return f"{name!r} is what tables and options call all genres together; give it another name"
    if len(name) > MAX_CHARACTERS:
        return f"it has {len(name)} characters, expected at most {MAX_CHARACTERS}"
    if not name.isprintable():
        return f"{name!r} holds characters that cannot be seen; write it without them"
    return ""
