"""The known name that somebody may have meant: one that is spelled nearly so, or that holds what he wrote."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SLIP, _NEAR = 0.86, 0.75
"""Least share of equal characters (difflib): of one slip, and of what is still likely: `gpu` is no slip for
`cpu`, nor `stride` for `store`."""
_LEAST, _MOST = 3, 4


def did_you_mean(name: str, known: Iterable[str], mark: str = "") -> str:
    """`; did you mean --steps?` for a name that is nearly one of `known`, or a part of some, else nothing.

    Args:
        mark: what is put before the names that are found, such as `--`.
    """
    names = {each.lower(): each for each in known}
    wanted = name.lower()[:100]
    holding = [each for each in names if len(wanted) >= _LEAST and wanted in each]
    found = _near(wanted, names, _SLIP) or holding[:_MOST] or _near(wanted, names, _NEAR)
    return f"; did you mean {', '.join(mark + names[each] for each in found)}?" if found else ""


def _near(wanted: str, names: Iterable[str], share: float) -> list[str]:
    return difflib.get_close_matches(wanted, list(names), n=1, cutoff=share)
