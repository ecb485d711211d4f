"""A training as a person sees it in the terminal."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from yanmo.common.answers import visible
from yanmo.common.logs import human_bytes, human_seconds
from yanmo.formats.stage_cost import finite
from yanmo.tools.watch.curve import curve
from yanmo.tools.watch.training import Training

_LEAST_SILENCE = 60.0
_USUAL_GAPS = 5.0
"""A training is said to stand still after five of its usual intervals, and a minute."""
_DEAD_SECONDS = 30.0
"""A rank touches its heartbeat once a second."""
_EVENTS = 5
_CURVE_HEIGHT = 8
_FIGURES = {
    "loss": ("loss", "{:.3f}"),
    "perplexity": ("perplexity", "{:.1f}"),
    "bits_per_character": ("bits per character", "{:.3f}"),
    "learning_rate": ("learning rate", "{:.3g}"),
    "grad_norm": ("gradient norm", "{:.3g}"),
    "tokens_per_second": ("tokens/s", "{:,.0f}"),
    "samples_per_second": ("rows/s", "{:.3g}"),
    "mfu": ("MFU", "{:.1%}"),
}
_MEMORY = {"memory_bytes": "memory", "memory_peak_bytes": "at most"}


def shown(training: Training, width: int) -> RenderableType:
    """All of it, in lines of at most `width` columns."""
    intervals = [line for line in training.lines if "tokens_per_second" in line or "loss" in line]
    last = intervals[-1] if intervals else {}
    parts: list[RenderableType] = [_head(training), *_progress(training, last, width)]
    if last:
        parts += [_figures(last), *_phases(intervals)]
        parts += _curves(training.lines, width)
    parts += [Text(line, style="bold yellow") for line in warnings(training)]
    parts += _failures(training)
    parts += [Text(line, style="dim") for line in _events(training.lines)]
    return Group(*parts)


def _head(training: Training) -> Text:
    states = {
        "at work": f"at work on {visible(training.holder)}",
        "left": "nobody works on it; the same command goes on",
        "done": "done",
    }
    note = f" ({training.note})" if training.note else ""
    return Text.assemble((training.name, "bold"), f"  {states[training.state]}{note}")


def _progress(training: Training, last: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    step, steps = int(training.lines[-1]["step"]) if training.lines else 0, training.steps
    if not steps:
        yield Text(f"step {step}")
        return
    left = finite(last.get("seconds_left"))
    time_left = f", {human_seconds(left)} left" if left and training.state == "at work" else ""
    took = finite(last.get("seconds"))
    time_taken = f", {human_seconds(took)} so far" if took and training.state != "done" else ""
    time_taken = f", {human_seconds(took)}" if took and training.state == "done" else time_taken
    yield Text(f"step {step} of {steps} ({100 * step // steps} %){time_taken}{time_left}")
    columns = min(width, 80)
    full = columns * min(step, steps) // steps
    yield Text("━" * full, style="green").append("━" * (columns - full), style="bright_black")


def _figures(last: Mapping[str, Any]) -> Table:
    table = Table.grid(padding=(0, 3))
    cells = [
        f"{name} {form.format(value)}"
        for key, (name, form) in _FIGURES.items()
        if (value := finite(last.get(key))) is not None
    ]
    memory = [
        f"{name} {human_bytes(value)}"
        for key, name in _MEMORY.items()
        if (value := finite(last.get(key))) is not None
    ]
    cells += [", ".join(memory)] if memory else []
    for at in range(0, len(cells), 3):
        table.add_row(*cells[at : at + 3])
    return table


def _phases(intervals: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """Where the time of the last interval went."""
    phases = intervals[-1].get("phase_seconds")
    known = {n: v for n, s in phases.items() if (v := finite(s))} if isinstance(phases, dict) else {}
    total = sum(known.values())
    if total > 0:
        shares = sorted(known.items(), key=lambda pair: -pair[1])
        yield Text("time  " + "  ".join(f"{visible(n)} {100 * v / total:.0f} %" for n, v in shares))


def _curves(lines: Sequence[Mapping[str, Any]], width: int) -> Iterator[Text]:
    trained = [
        (float(line["step"]), bits)
        for line in lines
        if (bits := finite(line.get("bits_per_character"))) is not None
    ]
    if len(trained) < 2:
        return
    (first, _), (last, now) = trained[0], trained[-1]
    measured = [(line["step"], bits) for line in lines if (bits := _validated(line)) is not None]
    valid = f"; validation {measured[-1][1]:.3f} at step {measured[-1][0]}" if measured else ""
    yield Text(f"bits per character, now {now:.3f}{valid}")
    highest, lowest = max(y for _, y in trained), min(y for _, y in trained)
    drawn = curve(trained, max(min(width - 10, 100), 10), _CURVE_HEIGHT)
    for number, line in enumerate(drawn):
        edge = highest if number == 0 else lowest if number == len(drawn) - 1 else None
        yield Text(f"{edge:8.3f} " if edge is not None else " " * 9).append(line, style="cyan")
    yield Text(f"{'step':>8} {first:.0f} to {last:.0f}")


def _validated(line: Mapping[str, Any]) -> float | None:
    for name in ("valid_bits_per_character", "curve_bits_per_character"):
        found = line.get(name)
        if isinstance(found, dict):
            return finite(found.get("mean"))
    return None


def warnings(training: Training) -> list[str]:
    """What is wrong now, each in a line."""
    found = []
    gaps = _gaps(training.lines)
    usual = statistics.median(gaps) if gaps else 0.0
    silent = training.silent_seconds
    if silent is not None and silent > max(_LEAST_SILENCE, _USUAL_GAPS * usual):
        often = f"; a line comes every {human_seconds(usual)}" if gaps else ""
        found.append(f"stands still: no line for {human_seconds(silent)}{often}")
    for rank, age in training.heartbeats.items():
        if age > _DEAD_SECONDS:
            found.append(f"rank {rank} has shown no sign of life for {human_seconds(age)}")
    last = next((line for line in reversed(training.lines) if "loss" in line), None)
    if last is not None and last["loss"] is None:
        found.append(f"step {last['step']}: every step since the line before was skipped, loss not finite")
    return found


def _failures(training: Training) -> Iterator[Text]:
    """The card of the last try that failed: all of it where nobody works on the training, else in a line."""
    if not training.failures:
        return
    last, *earlier = training.failures
    if training.state == "left":
        yield from (
            Text(visible(line), style="bold red" if n == 0 else "red") for n, line in enumerate(last.lines())
        )
    else:
        yield Text(
            visible(f"went on after a failure at {last.made_at}: {'; '.join(last.lines()[1:3])}"), style="dim"
        )
    if earlier:
        yield Text(f"{len(earlier)} earlier failures", style="dim")


def _gaps(lines: Sequence[Mapping[str, Any]]) -> list[float]:
    """Seconds between lines of intervals; a training that began again counts from there."""
    times = [seconds for line in lines if (seconds := finite(line.get("seconds"))) is not None]
    return [b - a for a, b in itertools.pairwise(times) if b > a]


def _events(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    events = [line for line in lines if isinstance(line.get("event"), str)]
    if len(events) > _EVENTS:
        yield f"{len(events) - _EVENTS} earlier events"
    for line in events[-_EVENTS:]:
        more = ", ".join(f"{k} {v}" for k, v in line.items() if k not in ("step", "event") and v is not None)
        yield visible(f"step {line['step']}: {line['event']}" + (f" ({more})" if more else ""))
