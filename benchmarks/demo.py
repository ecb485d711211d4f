"""What `make demo` gave: bits per character, time, memory, disk and packing, as benchmarks/results/demo.json.

make demo && python benchmarks/demo.py --store runs/demo --channel demo
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from yanmo.common.control_group import usable_cpus
from yanmo.promote.page.lineage import trace
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer

RESULT = Path(__file__).parent / "results/demo.json"
TAKEN = ("bits_per_character", "training")
"""Of the verdict's report.json."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", default="runs/demo", help="a folder in which `make demo` ran")
    parser.add_argument("--channel", default="demo")
    given = parser.parse_args()
    verdict = output(given.store, given.channel, "promote")
    report = read(verdict, "report.json")
    found = {name: report[name] for name in TAKEN} | {"cost": cost(verdict)}
    found["training"] = {
        name: found["training"][name] for name in ("steps", "tokens", "parameters", "made_by")
    }
    lines = output(given.store, given.channel, "train").path("metrics.jsonl").read_text(encoding="utf-8")
    found["memory_peak_bytes"] = max(
        json.loads(line).get("memory_peak_bytes", 0) for line in lines.splitlines()
    )
    found["store_bytes"] = sum(path.stat().st_size for path in Path(given.store).rglob("*") if path.is_file())
    found |= {"packing": packing(given.store, given.channel), "cpus": usable_cpus(), "at": report["made_at"]}
    RESULT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def output(store: str, channel: str, stage: str) -> Output:
    """Return the channel's newest output of a stage."""
    opened = open_store(store)
    pointer = read_pointer(opened, channel, stage)
    if pointer is None:
        raise SystemExit(f"channel {channel} of {store} has no {stage}: run `make demo` first")
    return open_reference(opened, pointer)


def cost(verdict: Output) -> dict[str, Any]:
    """Return what each output on the way to a verdict took, and all together."""
    evaluation = verdict.input("challenger")
    assert evaluation is not None
    parts = [part for name in ("baselines", "writing") if (part := verdict.input(name))]
    made = [one for one in (*trace(evaluation).outputs, *parts, verdict) if one.entries("metrics.prom")]
    made.sort(key=lambda one: one.manifest.created_at)
    rows = [{"stage": one.manifest.stage, "cpu_seconds": cpu_seconds(one)} for one in made]
    return {"stages": rows, "total": {"cpu_seconds": sum(row["cpu_seconds"] for row in rows)}}


def cpu_seconds(made: Output) -> float:
    """Return what the process that made an output recorded beside it; `make demo` is not interrupted."""
    text = made.path("metrics.prom").read_text(encoding="utf-8")
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    wanted = f"yanmo_{made.manifest.stage}_cpu_seconds"
    return sum(float(sample.value) for sample in samples if sample.name == wanted)


def read(found: Output, name: str) -> Any:
    return json.loads(found.path(name).read_text(encoding="utf-8"))


def packing(store: str, channel: str) -> Any:
    """Return what `yanmo cache plan` says of two contexts."""
    command = [sys.executable, "-m", "yanmo.cli", "cache", "plan", f"{channel}/tokenize", "--json"]
    command += [f"--store={store}", "--context=128,1024"]
    plans = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    kept = ("context", "packing", "padding_share", "documents_cut", "short_documents_cut")
    return {
        "documents": plans["documents"],
        "plans": [{name: plan[name] for name in kept} for plan in plans["plans"]],
    }


if __name__ == "__main__":
    main()
