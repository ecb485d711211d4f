"""Writes docs/scale.md and docs/scale.zh.md: the words are in scale_words.py, the tables are computed."""

from __future__ import annotations

import re
import statistics
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import scale_here
import scale_tables as tables
from scale_cells import COUNTED, VOCABULARY, options_of
from scale_machine import ASSUMED, H100, H200, MACHINES, MEASURED, PUBLISHED, SHEET
from scale_model import OURS, PASSES, checkpoint_bytes, collectives
from scale_plan import Case, best, shape
from scale_prices import Prices
from scale_published import RUNS, ratios
from scale_words import CONSTANT_NAMES, HEADS, KINDS, PAGE, WORDS

SIZES = (1e8, 3.4e8, 1e9, 3e9, 7e9, 1.3e10, 3e10, 7e10)
COUNTS = (8, 64, 256, 800)
NETWORKS = (400, 100, 12.5)
"""GB/s of a node: eight ports of 400 Gb/s, two, one of 100."""
PRICE = 2.0
UNITS = {
    "peak_flops": 1e12,
    "full_share": 1.0,
    "half_width": 1.0,
    "memory_gib": 1.0,
    "memory_bandwidth": 1e12,
    "link_bandwidth": 1e9,
    "network_bandwidth": 1e9,
    "link_share": 1.0,
    "call_latency": 1e-6,
    "link_latency": 1e-6,
    "network_latency": 1e-6,
    "exchange_latency": 1e-6,
    "step_overhead": 1e-3,
    "fetch_overhead": 1e-3,
    "host_memory": 1e9,
    "host_bandwidth": 1e9,
    "store_bandwidth": 1e9,
    "watts": 1.0,
    "failure_hours": 1.0,
    "restart_seconds": 1.0,
}


def cases() -> list[Case]:
    """The models of the page."""
    return [Case(shape=shape(size, 32_768)) for size in SIZES]


def page(language: str) -> str:
    """The whole page in one language."""
    heads, all_cases = HEADS[language], cases()
    machines = [MACHINES[name] for name in ("h100", "h200", "a100")]
    kinds = dict(zip((MEASURED, SHEET, PUBLISHED, ASSUMED), KINDS[language], strict=True))
    names = {name: (CONSTANT_NAMES[language][name], unit) for name, unit in UNITS.items()}
    seven = next(case for case in all_cases if case.parameters > 6e9)
    facts = {
        "constants": tables.constants(machines, names, heads["constants"], kinds),
        "holding": tables.holding(all_cases, [H100, H200], heads["holding"]),
        "times": tables.times(all_cases, COUNTS, H100, heads["times"], language),
        "stops": tables.stops(all_cases, H100, NETWORKS, heads["stops"]),
        "bills": tables.bills(all_cases, H100, Prices(gpu_hour=PRICE), heads["bills"], language),
        "wires": tables.wires(seven, H100, 64, heads["wires"]),
        "benchmarks": tables.published(heads["published"], False, WORDS[language]),
        "wholes": tables.published(heads["published"], True, WORDS[language]),
        "price": tables.number(PRICE),
        "here": here(language),
        "counted": counted(language),
        **numbers(seven),
    }
    return wrapped(PAGE[language].format(**facts)).rstrip() + "\n"


_CJK = r"\u2e80-\u9fff\uff00-\uffef"
_TOKEN = re.compile(
    rf"(?:\*\*)?\[[^\]]*\]\([^)]*\)[，。；：、）.,;:)*]*|（?`[^`]*`[，。；：、）.,;:)*]*|（?[{_CJK}][，。；：、）*]*"
    rf"|[^\s`{_CJK}]+[，。；：、）*]*|\s+"
)
"""A link, a span of code, a Chinese character with what must not begin a line, a word."""
_COLUMNS = 100


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def wrapped(text: str) -> str:
    """Paragraphs and items filled to 100 columns, as figures change their length; all else as it is."""
    found: list[str] = []
    for block in text.split("\n\n"):
        if block.startswith(("|", "#", "    ")):
            found.append(block)
        else:
            items = re.split(r"\n(?=- )", block)
            found.append("\n".join(_filled(item) for item in items))
    return "\n\n".join(found)


def _filled(item: str) -> str:
    """One paragraph, or one item of a list with what hangs under it."""
    indent = "  " if item.startswith("- ") else ""
    joined = re.sub(rf"(?<=[{_CJK}])\s*\n\s*(?=[{_CJK}\[])|(?<=[，。；：、（）])\s*\n\s*", "", item.strip())
    lines, line = [], ""
    for token in _TOKEN.findall(re.sub(r"\s*\n\s*", " ", joined)):
        if line.strip() and _width(line) + _width(token.rstrip()) > _COLUMNS:
            lines.append(line.rstrip())
            line = indent
        line += token if line.strip() or not token.isspace() else ""
    return "\n".join([*lines, line.rstrip()])


def numbers(seven: Case) -> dict[str, str]:
    """Figures of the prose."""
    held = [ratio for run, ratio in ratios(RUNS) if not run.is_fitted and not run.is_whole]
    wholes = [ratio for run, ratio in ratios(RUNS) if run.is_whole]
    muon = replace(seven, optimizer="muon")
    plans = {name: best(case, 256, H100) for name, case in (("adamw", seven), ("muon", muon))}
    adamw, with_muon = plans["adamw"], plans["muon"]
    assert adamw and with_muon
    size = checkpoint_bytes(adamw.options, seven.vocab_size)
    between = 3600 * H100.failure_hours / 800
    return {
        "held_out": str(len(held)),
        "held_low": f"{min(held):.2f}",
        "held_high": f"{max(held):.2f}",
        "held_middle": f"{statistics.median(held):.2f}",
        "whole_low": f"{min(wholes):.2f}",
        "whole_high": f"{max(wholes):.2f}",
        "whole_middle": f"{statistics.median(wholes):.2f}",
        "muon_mfu": tables.percent(with_muon.step.mfu(H100, 256)),
        "adamw_mfu": tables.percent(adamw.step.mfu(H100, 256)),
        "checkpoint": tables.number(size / 1e9),
        "checkpoint_seconds": tables.number(size / H100.store_bandwidth),
        "between": tables.number(between / 86_400),
        "failing": f"{100 * (300 + H100.restart_seconds) / between:.2f}",
    }


def here(language: str) -> str:
    """What was measured here beside what is predicted for it; nothing before it was measured."""
    found = scale_here.read()
    if found is None:
        return WORDS[language]["not_measured"]
    return _here(found, language)


def _here(found: dict[str, Any], language: str) -> str:
    words, about = WORDS[language], found["about"]
    machine = scale_here.machine_here(found)
    steps, sends = scale_here.compare_steps(found), scale_here.compare_sends(found)
    rows = []
    for name in found["cells"]:
        row = [name]
        for one in (one for one in steps if one.cell == name):
            fitted = f" ({words['fitted']})" if one.is_fitted else ""
            row.append(f"{tables.number(one.measured, 3)} / {tables.number(one.predicted, 3)}{fitted}")
        rows.append(row)
    held = [abs(one.error) for one in steps if not one.is_fitted]
    errors = [(one.cell, one.ranks, one.error) for one in steps if not one.is_fitted]
    wide = [error for name, ranks, error in errors if "wide" in name and ranks > 1]
    held_sends = [abs(one.error) for one in sends if not one.is_fitted]
    return words["here"].format(
        begun=about["begun"],
        commit=about["commit"],
        processor=about["processor"],
        load=words["to"].join(map(str, about["load"])),
        cores=about["cores"],
        repeats=about["repeats"],
        table=tables.table(HEADS[language]["here"], rows),
        held=len(held),
        middle=f"{100 * statistics.median(held):.0f}",
        worst=f"{100 * max(held):.0f}",
        sends=len(held_sends),
        middle_sends=f"{100 * statistics.median(held_sends):.0f}",
        worst_sends=f"{100 * max(held_sends):.0f}",
        narrow=f"{100 * statistics.median(abs(e) for name, _, e in errors if 'narrow' in name):.0f}",
        wide=words["to"].join(f"{100 * abs(e):.0f}" for e in (max(wide), min(wide))),
        kept=tables.number(machine.kept_bandwidth / 1e9),
        memory=tables.number(machine.memory_bandwidth / 1e9),
        gflops=tables.number(machine.peak_flops / 1e9, 3),
        crowding=f"{machine.crowding:.2f}",
        link=tables.number(machine.link_bandwidth / 1e9),
        call=tables.number(1e3 * (machine.call_latency + machine.link_latency)),
        exchange=tables.number(1e3 * machine.exchange_latency),
        fetch=tables.number(1e3 * machine.fetch_overhead),
        overhead=tables.number(1e3 * machine.step_overhead),
    )


def counted(language: str) -> str:
    """What two ranks were seen to send beside what the model says; nothing before it was measured."""
    found = scale_here.read()
    if found is None:
        return ""
    seen, said, parameters = [], [], found["counted"]["ZeRO-1"]["parameters"]
    for name, cell in COUNTED.items():
        figures, o = found["counted"][name], options_of(cell, 2)
        seen.append(sum(PASSES[kind.split()[0]] * size / 2 for kind, size in figures["sent"].items()))
        said.append(sum(s.on_the_wire(2) for s in collectives(o, VOCABULARY, OURS)))
    shown = [", ".join(tables.number(size / parameters, 3) for size in sizes) for sizes in (seen, said)]
    return WORDS[language]["counted"].format(counted=shown[0], modelled=shown[1])


def write(folder: Path) -> None:
    """Both pages."""
    for language, name in (("en", "scale.md"), ("zh", "scale.zh.md")):
        (folder / name).write_text(page(language), encoding="utf-8")
