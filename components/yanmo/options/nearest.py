"""The known name that somebody may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from yanmo.options.guide_names import VALUES, as_named_here


def did_you_mean(name: str, known: Iterable[str], mark: str = "") -> str:
    """`; did you mean --steps?` for a name that is nearly one of `known`, else nothing.

    Args:
        mark: what is put before the name that is found, such as `--`.
    """
    names = {each.lower(): each for each in known}
    wanted = name.lower()[:100]
    if said := as_named_here(wanted, names):
        return f"; here: {said} (docs/how-to/settings.md)"
    meant = VALUES.get(wanted, "")
    found = [meant] if meant in names else difflib.get_close_matches(wanted, names, n=1, cutoff=0.6)
    return f"; did you mean {mark}{names[found[0]]}?" if found else ""
