"""The known name that somebody may have meant: one that is spelled nearly so."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], mark: str = "") -> str:
    """`; did you mean --steps?` for a name that is nearly one of `known`, else nothing.

    Args:
        mark: what is put before the name that is found, such as `--`.
    """
    names = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower()[:100], names, n=1, cutoff=0.6)
    return f"; did you mean {mark}{names[found[0]]}?" if found else ""
