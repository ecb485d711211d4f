"""What a check of benchmarks/gpu.sh found: one JSON line a measure, a table of all, an exit code."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

PASS, FAIL, SKIP, LATE = "pass", "FAIL", "skipped", "no time"
"""`skipped` is for a reason of the machine (no GPU, no compiler); `no time`: a check was not reached."""
FAILED, TRY_AGAIN = 1, 75
_MARK = "gpu-measure "


@dataclass(frozen=True)
class Measure:
    """A difference beside what it may be."""

    name: str
    status: str
    difference: float | None = None
    tolerance: float | None = None
    reason: str = ""
    """Why this tolerance; or why it was skipped or failed."""
    check: str = ""

    def line(self) -> str:
        """The measure as the driver reads it from a check's output."""
        values = dataclasses.asdict(self)
        for key in ("difference", "tolerance"):
            value = values[key]
            values[key] = None if value is None or not math.isfinite(value) else float(f"{value:.4g}")
        return _MARK + json.dumps(values, ensure_ascii=False)


def read_line(line: str) -> Measure | None:
    """The measure that a line of a check's output holds; None for any other line."""
    _, mark, text = line.partition(_MARK)
    if not mark:
        return None
    try:
        return Measure(**json.loads(text))
    except (ValueError, TypeError):  # another process wrote into it; the check then counts as failed
        return Measure(line.strip()[:60], FAIL, reason="an unreadable measure")


def within(name: str, difference: float, tolerance: float, reason: str) -> Measure:
    """Passes where the difference is at most the tolerance; NaN never does."""
    good = difference <= tolerance
    return Measure(name, PASS if good else FAIL, difference, tolerance, reason)


def holds(name: str, is_so: bool, reason: str) -> Measure:
    """Passes where something that is no number is as it should be."""
    return Measure(name, PASS if is_so else FAIL, 0.0 if is_so else 1.0, 0.0, reason)


def skipped(name: str, reason: str) -> Measure:
    """Not measured, for a reason of the machine."""
    return Measure(name, SKIP, reason=reason)


def table(measures: Iterable[Measure]) -> str:
    """All measures in Markdown."""
    lines = ["| check | measure | | difference | tolerance | why |", "|---|---|---|---|---|---|"]
    for m in measures:
        numbers = ["" if x is None else f"{x:.3g}" for x in (m.difference, m.tolerance)]
        lines.append(f"| {m.check} | {m.name} | {m.status} | {' | '.join(numbers)} | {m.reason} |")
    return "\n".join(lines)


def exit_code(measures: Iterable[Measure]) -> int:
    """0 where nothing failed and all was reached."""
    found = {m.status for m in measures}
    return FAILED if FAIL in found else TRY_AGAIN if LATE in found else 0
