"""The table of nights, for benchmarks/NOTES.md: plan and outcome, one row each."""

from __future__ import annotations

import re
import statistics
import textwrap
from pathlib import Path

from nights.record import Outcome, Record
from nights.scorer import allowed

_BETWEEN = re.compile(r"(?<=<!-- nights -->\n).*?(?=<!-- /nights -->)", re.S)
_HEAD = (
    "night", "data", "fault", "seconds", "runs", "verdict", "champion", "bits on fresh texts",
    "added, kB (predicted)", "found",
)  # fmt: skip
_DATA = {"same": "as before", "copy": "a copy of the evaluation set", "empty": "an empty file"}
_FAULT = {
    "quiet": "none",
    "pod": "pod deleted by force in {stage}",
    "kubelet": "kubelet stopped for 20 s in {stage}",
    "api": "API server restarted in {stage}",
    "store": "S3 answers 503 for 10 s in {stage}",
    "clock": "clock {hours} h off in {stage}",
    "secret": "Secret rotated in {stage}",
    "disk": "scratch disk full in train",
    "lab": "everything down and up before",
}
_SPREAD = (
    "The spread of the seed is not measured yet, so new champions are not judged.",
    "By the seed alone two models differ by more than {limit} bits per character on the fresh texts in "
    "one case of a hundred.",
)
"""Whether the spread is known -> sentence."""


def table(record: Record) -> str:
    """Markdown of all nights so far."""
    lines = [f"| {' | '.join(_HEAD)} |", "|" + "---|" * len(_HEAD)]
    lines += [f"| {' | '.join(_cells(night))} |" for night in record.nights]
    return "\n".join(lines) + "\n"


def _cells(night: Outcome) -> list[str]:
    fault = _FAULT[night.fault].format(stage=night.stage, hours=f"{night.clock / 3600:+.1f}")
    if night.met:
        fault += f" ({night.met})"
    bits = "" if night.fresh_bits is None else f"{night.fresh_bits:.3f}"
    size = f"{night.added_bytes / 1000:,.0f} ({night.predicted_bytes / 1000:,.0f})"
    return [
        str(night.number), _DATA.get(night.data, night.data), fault, f"{night.seconds:.0f}", str(night.runs),
        night.verdict or "LOST", f"`{night.champion[:8]}`", bits, size,
        "none" if not night.findings else str(len(night.findings)),
    ]  # fmt: skip


def summary(record: Record) -> str:
    """What all nights came to, in one paragraph."""
    nights = record.nights
    lost = sum(not night.verdict for night in nights)
    saved = sum(bool(night.verdict) and night.runs > 1 for night in nights)
    new = sum(night.verdict == "promoted" for night in nights)
    middle = statistics.median(night.seconds for night in nights) if nights else 0.0
    added, expected = sum(n.added_bytes for n in nights), sum(n.predicted_bytes for n in nights)
    spread = _SPREAD[len(record.seeds_bits) > 3]
    if len(record.seeds_bits) > 3:
        spread = spread.format(limit=f"{allowed(record.seeds_bits):.3f}")
    sittings, commits = len({night.sitting for night in nights}), ", ".join(dict.fromkeys(record.commits))
    findings = len(record.findings)
    said = (
        f"Seed: {record.seed}. Nights: {len(nights)}. Sittings: {sittings} (commit {commits}; "
        f"{record.machine}). Nights lost: {lost}. Saved by a further run: {saved}. New champions: {new}. "
        f"Median of a night: {middle:.0f} s. The store grew by {added / 1e6:.1f} MB, "
        f"{expected / 1e6:.1f} MB were predicted. Findings: {findings}. {spread}"
    )
    notes = "".join(f"\n- {wrapped(note[:300])}" for note in (*record.notes, *record.findings))
    return wrapped(said) + "\n" + notes + "\n"


def wrapped(text: str) -> str:
    """Lines of at most 98 columns."""
    return textwrap.fill(text, 98, break_on_hyphens=False)


def write_table(notes: Path, record: Record) -> None:
    """Put summary and table between their marks in benchmarks/NOTES.md."""
    text = notes.read_text(encoding="utf-8")
    assert _BETWEEN.search(text), notes
    made = f"\n{summary(record)}\n{table(record)}\n"
    notes.write_text(_BETWEEN.sub(lambda _: made, text), encoding="utf-8")
