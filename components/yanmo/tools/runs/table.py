"""Runs as a table for a terminal, and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from yanmo.common.aligned_table import text_table
from yanmo.common.logs import human_seconds
from yanmo.common.shell_words import shell_line
from yanmo.tools.evaluations import Bits, Evaluation
from yanmo.tools.runs.gather import Gathered, Run

_ABSENT = "-"
_WIDEST = 40
"""Characters of an option's value; --json has all of it."""


def lines(found: Gathered) -> Iterator[str]:
    """Yield the lines of the table, what it is of before them and what to do next after them."""
    where = f"channel {found.channel} of {found.uri}" if found.channel else found.uri
    if not found.runs:
        yield f"{where}: no runs; `yanmo train` makes one"
        return
    older = f", {found.others} older not shown" if found.others else ""
    yield f"{where}: {len(found.runs)} run{'s' * (len(found.runs) > 1)}{older}"
    measured = sorted(found.measured, key=lambda one: one.mean.value)
    if measured:
        split = measured[0].conditions.get("split", "test")
        yield (
            f"bits per character: {split} split of {_set_of(measured[0])}, {len(measured)} of "
            f"{len(found.runs)} runs measured; lower is better"
        )
    yield ""
    yield from text_table(list(_rows(found)))
    if len(measured) > 1:
        place = ["--store", found.uri, *(["--channel", found.channel] if found.channel else [])]
        yield ""
        yield (
            "An interval is of one run alone. The two best, compared text by text: `yanmo promote "
            f"--challenger {measured[0].output} --champion {measured[1].output} --dry-run "
            f"{shell_line(place)}`"
        )


def _rows(found: Gathered) -> Iterator[list[str]]:
    genres = list(dict.fromkeys(genre for one in found.measured for genre in one.genres))
    short = Counter(name.partition(".")[2] for name in found.differing)
    options = [
        name if short[name.partition(".")[2]] > 1 else name.partition(".")[2] for name in found.differing
    ]
    yield ["run", "made (UTC)", "champion", *options, "mean [interval]", *genres, "wall", "tokens"]
    for run in found.runs:
        manifest, evaluation = run.model.manifest, run.evaluation
        bits = [_shown_bits(evaluation.genres.get(g) if evaluation else None) for g in genres]
        yield [
            str(run.model),
            manifest.created_at[:16].replace("T", " "),
            ", ".join(run.champion) or _ABSENT,
            *(_shown(run.options.get(name)) for name in found.differing),
            _shown_bits(evaluation.mean if evaluation else None, with_interval=True),
            *bits,
            _ABSENT if run.seconds is None else human_seconds(run.seconds),
            f"{manifest.counts.get('tokens', 0):,}",
        ]


def _shown(value: Any) -> str:
    text = _ABSENT if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 2]}.."


def _shown_bits(bits: Bits | None, *, with_interval: bool = False) -> str:
    if bits is None:
        return _ABSENT
    shown = f"{bits.value:.3f}"
    return (
        f"{shown} [{bits.interval[0]:.3f}, {bits.interval[1]:.3f}]"
        if with_interval and bits.interval
        else shown
    )


def _set_of(evaluation: Evaluation) -> str:
    value = evaluation.output.manifest.inputs["evaluation_set"]
    return f"{value['stage']}/{value['key'][:12]}"


def as_json(found: Gathered) -> str:
    """Return everything that is known of the runs, for scripts."""
    document = {
        "store": found.uri,
        "channel": found.channel,
        "conditions": found.measured[0].conditions if found.measured else None,
        "differing": found.differing,
        "older_runs": found.others,
        "runs": [_document(run) for run in found.runs],
    }
    return json.dumps(document, ensure_ascii=False, indent=1)


def _document(run: Run) -> dict[str, Any]:
    evaluation, counts = run.evaluation, run.model.manifest.counts
    return {
        "run": run.name,
        "made_at": run.model.manifest.created_at,
        "champion": run.champion,
        "evaluation": f"evaluate/{evaluation.output.manifest.key}" if evaluation else None,
        "mean": _bits(evaluation.mean) if evaluation else None,
        "genres": {name: _bits(bits) for name, bits in evaluation.genres.items()} if evaluation else {},
        "seconds": run.seconds,
        **{name: counts.get(name) for name in ("steps", "tokens", "parameters")},
        "made_of": {stage: f"{o.manifest.stage}/{o.manifest.key}" for stage, o in run.chain.items()},
        "options": run.options,
    }


def _bits(bits: Bits) -> dict[str, Any]:
    return {"bits_per_character": bits.value, "interval": bits.interval}
