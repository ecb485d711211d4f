"""In which order runs are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.formats.genre_names import GENRE_ALIASES
from yanmo.formats.stage_cost import finite
from yanmo.options.nearest import did_you_mean
from yanmo.tools.runs.differing import Value, compare_options
from yanmo.tools.runs.gather import Gathered, Run

_SMALLEST_FIRST: dict[str, Callable[[Run], Any]] = {
    "mean": lambda run: run.evaluation.mean.value if run.evaluation else None,
    "wall": lambda run: run.cost.seconds,
    "cpu": lambda run: run.cost.cpu_seconds,
    "gpu_hours": lambda run: run.cost.gpu_hours,
}
_LARGEST_FIRST: dict[str, Callable[[Run], Any]] = {
    "tokens": lambda run: run.count("tokens"),
    "parameters": lambda run: run.count("parameters"),
}


def ordered(found: Gathered, name: str) -> list[Run]:
    """The runs in the order of a column; those that have nothing there come last, the newest first.

    Args:
        name: `made`, `mean`, a genre, a cost, a count, or an option.

    Raises:
        UsageError: no run has such a thing.
    """
    if name == "made" or not found.runs:
        return list(found.runs)
    key = _key(found, name)
    known = [(value, run) for run in found.runs if (value := key(run)) is not None]
    known.sort(key=lambda pair: pair[0], reverse=name in _LARGEST_FIRST)
    placed = [run for _, run in known]
    return placed + [run for run in found.runs if key(run) is None]


def _key(found: Gathered, name: str) -> Callable[[Run], Any]:
    known = _SMALLEST_FIRST | _LARGEST_FIRST
    if name in known:
        return known[name]
    genre = _genre(found, name)
    if genre:
        return lambda run: g.value if run.evaluation and (g := run.evaluation.genres.get(genre)) else None
    options = dict(zip((run.key for run in found.runs), compare_options(found.runs).by_run, strict=True))
    names = list(dict.fromkeys(one for each in options.values() for one in each))
    meant = [one for one in names if name in (one, one.partition(".")[2])]
    if len(meant) == 1:
        return lambda run: _rank(options[run.key].get(meant[0]))
    if meant:
        raise UsageError(f"--sort {name}: could be {', '.join(meant)}; give the whole name")
    choices = ["made", *known, *found.genres]
    hint = did_you_mean(name, [*choices, *names, *(one.partition(".")[2] for one in names)])
    raise UsageError(
        f"--sort {name[:100]!r}: expected {', '.join(choices[:20])}, or an option of the runs{hint}"
    )


def _genre(found: Gathered, name: str) -> str:
    if name in found.genres:
        return name
    alias = GENRE_ALIASES.get(name, "")
    return alias if alias in found.genres else ""


def _rank(value: Value | None) -> tuple[int, float, str] | None:
    """Numbers before texts."""
    if value is None:
        return None
    number = finite(value.plain)
    return (1, 0.0, str(value)) if number is None else (0, number, "")
