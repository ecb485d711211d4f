"""The tables of benchmarks/scale.py in Markdown, for a terminal and for docs/scale.md, in two languages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from scale_machine import SOURCES, Machine
from scale_model import OURS, PAPER, collectives
from scale_plan import Case, Plan, best, pays, smallest
from scale_prices import Prices
from scale_published import RUNS, ratios

Row = Sequence[str]
NONE = "-"


def table(heads: Row, rows: Iterable[Row]) -> str:
    """In Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return (
        "\n".join("| " + " | ".join(line) + " |" for line in lines)
        .replace("| --- |", "|---|")
        .replace(" --- |", "---|")
    )


def number(value: float, digits: int = 2) -> str:
    """With so many significant digits, thousands apart: 4,303, 12, 0.31."""
    if abs(value) < 1:
        return f"{value:.{digits}g}"
    places = digits - len(str(int(abs(value))))
    shown = f"{round(value, places):,.{max(0, places)}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def duration(seconds: float, language: str = "en") -> str:
    """40 min, 7.5 h, 12 d."""
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= 1.5 * size or unit == "s":
            chinese = {"d": "天", "h": "小时", "min": "分钟", "s": "秒"}[unit]
            return f"{number(seconds / size)} {unit if language == 'en' else chinese}"
    raise AssertionError


def billions(parameters: float) -> str:
    """0.1, 7.1, 70."""
    return number(parameters / 1e9)


def percent(share: float) -> str:
    """Whole."""
    return f"{100 * share:.0f} %"


USER_HEADS = (
    "GPUs",
    "ZeRO",
    "recompute",
    "rows x forwards",
    "GPU memory, GiB",
    "node memory, GB",
    "step, s",
    "tokens/s",
    "MFU",
    "waits for the network",
    "an added GPU gives",
    "time",
    "GPU-hours",
    "MWh",
    "cost",
)


def user_rows(
    case: Case, counts: Sequence[int], machine: Machine, prices: Prices, stages: Sequence[int]
) -> str:
    """What a user asks for: a row for each number of GPUs."""
    plans = [best(case, n, machine, stages) for n in counts]
    rows = []
    for count, plan, share in zip(counts, plans, pays(plans), strict=True):
        if plan is None:
            why = "more GPUs than rows in the batch" if count > case.rows else "does not fit"
            rows.append([f"{count:,}", why, *[NONE] * (len(USER_HEADS) - 2)])
            continue
        o, step, cost = plan.options, plan.step, plan.cost(prices)
        host = number(plan.host_bytes / 1e9) + (
            " (too little)" if plan.host_bytes > machine.host_memory else ""
        )
        rows.append(
            [
                f"{count:,}",
                str(o.zero_stage),
                "yes" if o.gradient_checkpointing else "no",
                f"{o.micro_rows} x {o.accumulation}",
                f"{step.memory.total / 2**30:.0f}",
                host,
                number(step.seconds),
                number(plan.tokens_per_second, 3),
                percent(step.mfu(machine, count)),
                percent(step.waiting / step.seconds),
                NONE if share is None else percent(share),
                duration(plan.seconds),
                number(plan.gpu_hours, 3),
                number(plan.kwh / 1000),
                NONE if cost is None else f"{number(cost, 3)} {prices.currency}".strip(),
            ]
        )
    return table(USER_HEADS, rows)


def holding(cases: Sequence[Case], machines: Sequence[Machine], heads: Row) -> str:
    """The smallest number of GPUs that holds a model, by stage, without and with recomputation."""
    rows = []
    for case in cases:
        cells = [billions(case.parameters)]
        for machine in machines:
            for stage in (1, 2, 3):
                found = (smallest(case, machine, stage, again) for again in (False, True))
                cells.append(" / ".join(NONE if n is None else str(n) for n in found))
        rows.append(cells)
    return table(heads, rows)


def times(cases: Sequence[Case], counts: Sequence[int], machine: Machine, heads: Row, language: str) -> str:
    """Time by model and number of GPUs, the way that is taken, and the share of computing."""
    rows = []
    for case in cases:
        cells = [billions(case.parameters), billions(case.all_tokens)]
        for count in counts:
            plan = best(case, count, machine)
            if plan is None:
                cells.append(NONE)
                continue
            way = f"Z{plan.options.zero_stage}{'r' if plan.options.gradient_checkpointing else ''}"
            cells.append(f"{duration(plan.seconds, language)}, {way}, {percent(plan.step.compute_share)}")
        rows.append(cells)
    return table(heads, rows)


LADDER = (8, 16, 32, 64, 128, 256, 512, 800)
PAYS = 0.5
"""An added GPU should give half of what one gave before."""


def last_that_pays(case: Case, machine: Machine) -> Plan | None:
    """The largest number of GPUs to which each step up the ladder was worth it."""
    plans = [plan for n in LADDER if (plan := best(case, n, machine)) is not None]
    found: Plan | None = None
    for plan, share in zip(plans, pays(list(plans)), strict=True):
        if share is not None and share < PAYS:
            break
        found = plan
    return found


def stops(cases: Sequence[Case], machine: Machine, networks: Sequence[float], heads: Row) -> str:
    """How many GPUs pay, by the network of a node in GB/s; for a node of 8."""
    rows = []
    for case in cases:
        cells = [billions(case.parameters), str(case.rows)]
        for network in networks:
            plan = last_that_pays(case, dataclasses.replace(machine, network_bandwidth=network * 1e9))
            cells.append(NONE if plan is None else f"{plan.ranks} ({percent(plan.step.compute_share)})")
        rows.append(cells)
    return table(heads, rows)


def bills(cases: Sequence[Case], machine: Machine, prices: Prices, heads: Row, language: str) -> str:
    """What the largest number of GPUs that pays takes and costs."""
    rows = []
    for case in cases:
        plan = last_that_pays(case, machine)
        if plan is None:
            continue
        cost = plan.cost(prices)
        assert cost is not None
        host = plan.host_bytes / 1e9
        rows.append(
            [
                billions(case.parameters),
                str(plan.ranks),
                duration(plan.seconds, language),
                number(plan.gpu_hours),
                number(plan.kwh / 1000),
                number(cost),
                f"{plan.step.memory.total / 2**30:.0f}",
                f"**{number(host)}**" if 1e9 * host > machine.host_memory else number(host),
            ]
        )
    return table(heads, rows)


def wires(case: Case, machine: Machine, ranks: int, heads: Row) -> str:
    """What a rank sends in a step with one forward and with 8, by stage; ours and the paper's."""
    rows = []
    for stage in (1, 2, 3):
        cells = [f"ZeRO-{stage}"]
        for engine in (PAPER, OURS):
            for forwards in (1, 8):
                o = dataclasses.replace(
                    case.options(ranks, machine), zero_stage=stage, batch_rows=ranks * forwards, micro_batch=1
                )
                sent = collectives(o, case.vocab_size, engine)
                cells.append(number(sum(s.on_the_wire(ranks) for s in sent) / case.parameters, 3))
        rows.append(cells)
    return table(heads, rows)


def constants(
    machines: Sequence[Machine], names: dict[str, tuple[str, float]], heads: Row, kinds: dict[str, str]
) -> str:
    """Each constant of the machines in its unit, and where it comes from.

    Args:
        names: constant -> what it is called with its unit, and what the value is divided by.
        kinds: kind of a source -> what it is called.
    """
    rows = []
    for name, (called, unit) in names.items():
        values = [number(getattr(machine, name) / unit, 4) for machine in machines]
        kind, source = SOURCES[name]
        rows.append([called, *values, kinds[kind] + (f": {source}" if source else "")])
    return table(heads, rows)


def published(heads: Row, wholes: bool, words: dict[str, str]) -> str:
    """Published runs: benchmarks of some steps, or whole trainings."""
    rows = []
    for run, ratio in ratios(tuple(r for r in RUNS if r.is_whole == wholes)):
        o = run.options()
        said = (
            f"{run.gpu_hours:,.0f} {words['hours']}"
            if run.gpu_hours
            else f"{run.published:,.0f} {words['speed']}"
        )
        rows.append(
            [
                run.name,
                f"{run.gpus:,} x {run.machine}",
                f"{o.context}, {o.batch_rows}",
                said,
                f"{run.predicted():,.0f}",
                f"{ratio:.2f}" + (f" ({words['fitted']})" if run.is_fitted else ""),
                run.source,
            ]
        )
    return table(heads, rows)
