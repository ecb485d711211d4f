"""The table of faults, alerts and delays, for the terminal and for benchmarks/NOTES.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drill.__main__ import Outcome

_BETWEEN = re.compile(r"(?<=<!-- drill -->\n).*?(?=<!-- /drill -->)", re.S)
_HEAD = "| fault | alert | severity | what its rule waits for | came after, times / {factor:g} | others |"


def table_of(outcomes: Sequence[Outcome], factor: float) -> str:
    """Return the table in Markdown, a row per fault."""
    lines = [_HEAD.format(factor=factor), "|" + "---|" * (_HEAD.count("|") - 1)]
    for each in outcomes:
        fault = each.fault
        if each.left_out:
            came = f"not tried: {each.left_out}"
        else:
            came = "it did not come" if each.delay is None else f"{each.delay:.1f} s"
        others = ", ".join(f"`{name}`" for name in each.others) or "none"
        cells = [fault.what, f"`{fault.alert}`", each.severity, fault.waits, came, others]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write_table(notes: Path, table: str) -> None:
    """Put it between its marks in benchmarks/NOTES.md."""
    text = notes.read_text(encoding="utf-8")
    assert _BETWEEN.search(text), notes
    notes.write_text(_BETWEEN.sub(lambda _: f"\n{table}\n", text), encoding="utf-8")
