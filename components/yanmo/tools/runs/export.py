"""Runs as CSV and as JSON: all digits, all intervals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from yanmo.tools.runs.differing import compare_options
from yanmo.tools.runs.evaluations import Bits
from yanmo.tools.runs.gather import Gathered, Run
from yanmo.tools.runs.one_change import changes
from yanmo.tools.runs.table import champion

_QUOTED = re.compile('[",\r\n]')
_COST = ("seconds", "cpu_seconds", "gpu_hours", "kwh")
_COUNTS = ("steps", "tokens", "parameters")


def as_csv(found: Gathered) -> str:
    """A line a run; columns of options are those that differ, under their whole names; empty is unknown."""
    compared = compare_options(found.runs)
    table = []
    for number, run in enumerate(found.runs):
        row: dict[str, Any] = {"run": f"train/{run.key}", "made_at": run.made_at, "state": run.state}
        row["champion"] = champion(run, found.channel)
        row |= {name: _plain(compared.by_run[number].get(name)) for name in compared.differing}
        table.append(row | dict(_measured(run, found)) | _cost(run))
    return csv_text(table)


def csv_text(table: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same columns, in one order, under a heading; None becomes empty."""
    lines = [list(table[0]), *(row.values() for row in table)] if table else []
    return _writable("".join(",".join(map(_field, line)) + "\n" for line in lines))


def _field(value: Any) -> str:
    """As RFC 4180 wants it; the standard library does not quote a lone carriage return."""
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def as_json(found: Gathered) -> str:
    """Everything that is known of the runs, for scripts."""
    compared = compare_options(found.runs)
    runs = []
    for number, run in enumerate(found.runs):
        options = {name: value.plain for name, value in compared.by_run[number].items()}
        evaluation = run.evaluation
        runs.append(
            {
                "run": f"train/{run.key}",
                "made_at": run.made_at,
                "state": run.state,
                "chain_is_whole": run.is_whole,
                "champion_of": run.champion_of,
                "was_champion_of": run.was_champion_of,
                "evaluation": f"evaluate/{evaluation.output.manifest.key}" if evaluation else None,
                "mean": _bits(evaluation.mean) if evaluation else None,
                "genres": {g: _bits(b) for g, b in evaluation.genres.items()} if evaluation else {},
                **_cost(run),
                "made_of": {stage: f"{o.manifest.stage}/{o.manifest.key}" for stage, o in run.chain.items()},
                "options": options,
            }
        )
    document = {
        "store": found.uri,
        "channel": found.channel,
        "conditions": dict(found.measured[0].conditions) if found.measured else None,
        "measured_otherwise": found.elsewhere,
        "differing": compared.differing,
        "same": {name: value.plain for name, value in compared.same.items()},
        "in_some": compared.in_some,
        "one_change": [
            {"option": change.name, "runs": [f"train/{found.runs[n].key}" for n in change.numbers]}
            for change in changes(found.runs, compared)
        ],
        "older_runs": found.others,
        "runs": runs,
    }
    return _writable(json.dumps(document, ensure_ascii=False, indent=1))


def _measured(run: Run, found: Gathered) -> Iterator[tuple[str, Any]]:
    evaluation = run.evaluation
    yield "evaluation", f"evaluate/{evaluation.output.manifest.key}" if evaluation else ""
    mean = evaluation.mean if evaluation else None
    for name in ("value", "low", "high"):
        yield ("mean" if name == "value" else f"mean_{name}"), getattr(mean, name, None)
    for genre in found.genres:
        bits = evaluation.genres.get(genre) if evaluation else None
        yield f"bits.{genre}", bits.value if bits else None
        yield f"low.{genre}", bits.low if bits else None
        yield f"high.{genre}", bits.high if bits else None


def _cost(run: Run) -> dict[str, Any]:
    return {**{n: getattr(run.cost, n) for n in _COST}, **{n: run.count(n) for n in _COUNTS}}


def _bits(bits: Bits) -> dict[str, Any]:
    interval = None if bits.low is None else [bits.low, bits.high]
    return {"bits_per_character": bits.value, "interval": interval}


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return value.plain if isinstance(value.plain, str) else str(value)


def _writable(text: str) -> str:
    """Without halves of characters, which UTF-8 cannot hold; JSON writes them so as well."""
    return text.encode("utf-8", "backslashreplace").decode()
