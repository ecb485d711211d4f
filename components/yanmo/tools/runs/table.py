"""Runs as a table for a terminal."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence

from yanmo.common.aligned_table import text_table, width
from yanmo.common.answers import visible
from yanmo.common.logs import human_seconds
from yanmo.tools.runs.differing import ABSENT, Comparison, compare_options, labels
from yanmo.tools.runs.evaluations import Bits, Evaluation
from yanmo.tools.runs.gather import Gathered, Run
from yanmo.tools.runs.one_change import changes

_WIDEST = 28
"""Columns that a cell may take; names of outputs and intervals are shorter."""
_MOST_NAMES = 8


def lines(found: Gathered) -> list[str]:
    """What is the same, the table, and what a reader should know of it."""
    where = f"channel {found.channel} of {found.uri}" if found.channel else found.uri
    if not found.runs:
        return [plain(f"{where}: no runs; `yanmo train` makes one")]
    compared = compare_options(found.runs)
    older = f", {found.others} older not shown" if found.others else ""
    head = [f"{where}: {len(found.runs)} run{'s' * (len(found.runs) > 1)}{older}"]
    head += [line for line in (_same(compared), _in_some(compared), _measured(found)) if line]
    return [*map(plain, head), "", *text_table(rows(found, compared)), *map(plain, _notes(found, compared))]


def rows(found: Gathered, compared: Comparison) -> list[list[str]]:
    """The cells of the table, the heading first."""
    has_gpu = any(run.cost.gpu_hours for run in found.runs)
    has_state = any(run.state != "done" for run in found.runs)
    front = ["run", "made (UTC)", *(["state"] if has_state else []), "champion"]
    back = ["mean [interval]", *found.genres, "wall", "CPU", *(["GPU hours"] if has_gpu else [])]
    back += ["tokens", "parameters"]
    columns = [column(found, compared, name) for name in compared.differing]
    table = [[*front, *labels(compared.differing, [*front, *back]), *back]]
    for number, run in enumerate(found.runs):
        row = [run.name, run.made_at[:16].replace("T", " ") or ABSENT, *([run.state] if has_state else [])]
        row += [champion(run, found.channel) or ABSENT, *(cells[number] for cells in columns)]
        table.append([*row, *_results(run, found.genres), *_cost(run, has_gpu)])
    return [[shortened(plain(cell), _WIDEST) for cell in row] for row in table]


def champion(run: Run, channel: str) -> str:
    """Whether a run is or was champion: `now`, `was`; of a whole store, of which channels."""
    if channel:
        return "now" if run.champion_of else "was" if run.was_champion_of else ""
    return ", ".join([*run.champion_of, *(f"was {name}" for name in run.was_champion_of)])


def plain(text: str) -> str:
    """`text` on one line, and without what steers a terminal or cannot be written."""
    shown = visible(text).replace("\n", "\\n").replace("\t", "\\t")
    return shown.encode("utf-8", "backslashreplace").decode()


def _results(run: Run, genres: Sequence[str]) -> list[str]:
    if run.evaluation is None:
        return [ABSENT] * (1 + len(genres))
    of_genres = [run.evaluation.genres.get(genre) for genre in genres]
    return [_bits(run.evaluation.mean, True), *(_bits(each) for each in of_genres)]


def _bits(bits: Bits | None, with_interval: bool = False) -> str:
    if bits is None:
        return ABSENT
    interval = f" [{bits.low:.3f}, {bits.high:.3f}]" if with_interval and bits.low is not None else ""
    return f"{bits.value:.3f}{interval}"


def _cost(run: Run, has_gpu: bool) -> list[str]:
    seconds = (run.cost.seconds, run.cost.cpu_seconds)
    found = [ABSENT if value is None else human_seconds(value) for value in seconds]
    if has_gpu:
        found.append(ABSENT if run.cost.gpu_hours is None else f"{run.cost.gpu_hours:.2f}")
    counts = (run.count("tokens"), run.count("parameters"))
    return [*found, *(ABSENT if count is None else f"{count:,}" for count in counts)]


def column(found: Gathered, compared: Comparison, name: str) -> list[str]:
    """The cells of an option, cut so that different values stay different."""
    values = [options.get(name) for options in compared.by_run]
    whole = [plain(compared.cell(number, run, name)) for number, run in enumerate(found.runs)]
    long = sorted({cell for cell in whole if width(cell) > _WIDEST})
    begun = os.path.commonprefix(long) if len(long) > 1 else ""  # noqa: RUF071 - of characters, as is meant
    cut = {cell: shortened(f"..{cell[len(begun) :]}" if len(begun) > 8 else cell, _WIDEST) for cell in long}
    cells = [cut.get(cell, cell) for cell in whole]
    identities = [
        value.identity if value else cell.encode() for value, cell in zip(values, whole, strict=True)
    ]
    if len(set(cells)) == len({(value is None, one) for value, one in zip(values, identities, strict=True)}):
        return cells
    marks = [hashlib.sha256(one).hexdigest()[:4] for one in identities]
    return [
        f"{shortened(cell, _WIDEST - 5)}~{mark}" if value else cell
        for value, cell, mark in zip(values, cells, marks, strict=True)
    ]


def shortened(text: str, columns: int) -> str:
    """`text` in at most so many columns of a terminal; two dots stand for what is left out."""
    if width(text) <= columns:
        return text
    while width(text) > columns - 2:
        text = text[: min(len(text) - 1, columns)]
    return text + ".."


def _same(compared: Comparison) -> str:
    if len(compared.by_run) < 2:
        return ""
    counts = ", ".join(f"{stage} {number}" for stage, number in compared.counts().items())
    differing = ", ".join(compared.differing) or "nothing"
    return f"the same in all: {counts or 'no'} options and inputs (--json lists them). Differing: {differing}"


def _in_some(compared: Comparison) -> str:
    return f"in some only, with one value: {_names(compared.in_some)}" if compared.in_some else ""


def _measured(found: Gathered) -> str:
    if not found.measured:
        return "bits per character: no run was measured"
    conditions = found.measured[0].conditions
    where = _set_of(found.measured[0])
    more = (
        f", {conditions['documents_per_genre']} texts a genre" if "documents_per_genre" in conditions else ""
    )
    number = f"{len(found.measured)} of {len(found.runs)}"
    split = conditions.get("split", "test")
    return f"bits per character: {split} split of {where}{more}, {number} runs measured; lower is better"


def _notes(found: Gathered, compared: Comparison) -> Iterator[str]:
    told = list(_changes(found, compared))
    if told:
        yield ""
        yield "one option changed, all others the same (mean, the best first):"
        yield from told[:_MOST_NAMES]
    if len(told) > _MOST_NAMES:
        yield f"  and {len(told) - _MOST_NAMES} more (--json lists them)"
    if found.elsewhere:
        yield ""
        yield f"measured on other texts or in another way, not compared: {_names(found.elsewhere)}"
    absent = [run for run in found.runs if run.evaluation is None and run.state == "done"]
    if absent:
        yield ""
        how = " as the others were" if found.measured else ""
        yield f"{len(absent)} not measured: `{_command(found, absent[0])}` measures one{how}"
    best = sorted(found.measured, key=lambda each: each.mean.value)[:2]
    if len(best) == 2:
        yield ""
        yield (
            "An interval is of one run alone. The two best, compared text by text: `yanmo promote "
            f"--challenger {best[0].output} --champion {best[1].output} --dry-run`"
        )


def _changes(found: Gathered, compared: Comparison) -> Iterator[str]:
    for change in changes(found.runs, compared):
        cells = column(found, compared, change.name)
        means = [(n, found.runs[n].evaluation) for n in change.numbers]
        shown = _names([f"{each.mean.value:.3f} with {cells[n]}" for n, each in means if each])
        yield f"  {change.name}: {shown}"


def _command(found: Gathered, run: Run) -> str:
    """How to measure a run in the way in which the others were measured."""
    words = ["yanmo evaluate --model", run.name]
    if found.channel:
        words += ["--channel", found.channel]
    if found.measured:
        conditions = found.measured[0].conditions
        words += ["--evaluation-set", _set_of(found.measured[0])]
        stride = re.fullmatch(r"stride-(\d+)/.*", conditions.get("scoring", ""))
        given = {
            "split": conditions.get("split", "test"),
            "budget-documents": conditions.get("documents_per_genre", ""),
            "stride": stride[1] if stride else "",
        }
        words += [f"--{name} {value}" for name, value in given.items() if value not in ("", "test")]
    return " ".join([*words, "--documents none --pointer none"])


def _set_of(evaluation: Evaluation) -> str:
    value = evaluation.output.manifest.inputs.get("evaluation_set")
    return f"{value['stage']}/{value['key'][:12]}" if value and "key" in value else "evaluation_set/KEY"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
