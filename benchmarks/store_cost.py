"""What a year of nights costs: CPU time by stage, measured in the nights of store_nights.py.

    python benchmarks/store_nights.py --folder /tmp/nights --nights 14 > nights.jsonl
    python benchmarks/store_cost.py /tmp/nights --simulate 365 --text-mb 200 --new-mb 2 --cpu-hour-price 0.3

Inputs are the CPU seconds that the outputs of these nights recorded: of each stage but `train`, a straight
line through the raw text (all of it, or the night's own where a stage works file by file); of `train`, one
through its steps, as nights differ in them. The first night is left out, as it also builds
the tokenizer and the evaluation set. Training a larger model costs what it costs: --train-hours sets the
CPU-hours of a night's training.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from store_growth import Line

from yanmo.formats.stage_cost import stage_cost
from yanmo.store.opening import open_store
from yanmo.store.output import find_output
from yanmo.tools.store.inventory import take

Points = dict[str, list[tuple[float, float]]]


def measured(folder: Path) -> tuple[Points, dict[str, float]]:
    """Stage -> (bytes of text or steps, CPU seconds) of each night; and CPU seconds by night."""
    sizes = {p.stem: float(p.stat().st_size) for p in sorted((folder / "raw").glob("night-*.jsonl"))}
    text = {name: sum(s for other, s in sizes.items() if other <= name) for name in sizes}
    points: Points = defaultdict(list)
    nights: dict[str, float] = defaultdict(float)
    store = open_store(str(folder / "store"))
    for one in take(store, leftovers=False).keys.values():
        output = find_output(store, one.stage, one.key) if one.manifest else None
        if output is None or output.manifest.run_id not in text or not output.entries("metrics.prom"):
            continue
        night, cost = output.manifest.run_id, stage_cost(output)
        if cost.cpu_seconds is not None and night != min(text):
            is_train = one.stage == "train"
            at = float(output.manifest.counts["steps"]) if is_train else text[night]
            points[one.stage].append((at, cost.cpu_seconds))
            nights[night] += cost.cpu_seconds
    return points, dict(nights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="that of store_nights.py")
    parser.add_argument("--simulate", type=int, default=365, help="nights")
    parser.add_argument("--text-mb", type=float, default=200.0, help="raw text of the first night")
    parser.add_argument("--new-mb", type=float, default=2.0, help="new raw text each night")
    parser.add_argument("--steps", type=float, default=4.0, help="steps of each night's training")
    parser.add_argument("--train-hours", type=float, default=0.0, help="instead: its CPU-hours")
    parser.add_argument("--cpu-hour-price", type=float, default=0.0)
    options = parser.parse_args()
    points, nights = measured(options.folder)
    lines = {stage: Line.through(found) for stage, found in points.items()}
    print("| stage | nights measured | CPU s of a night, mean | CPU s by the line, per MB of text or step |")
    print("|---|---|---|---|")
    for stage, found in sorted(points.items()):
        mean = sum(cpu for _, cpu in found) / len(found)
        rate = lines[stage].rate * (1 if stage == "train" else 1e6)
        print(f"| {stage} | {len(found)} | {mean:.2f} | {lines[stage].fixed:.2f} + {rate:.3f} x |")
    print(f"\nwhole nights: {sum(nights.values()) / len(nights):.1f} CPU s on average of {len(nights)}\n")
    print("| nights | CPU h of the last | CPU h of all | cost of all |\n|---|---|---|---|")
    total = 0.0
    for night in range(1, options.simulate + 1):
        size = options.text_mb * 1e6 + (night - 1) * options.new_mb * 1e6
        hours = sum(line.at(size) for stage, line in lines.items() if stage != "train") / 3600
        hours += options.train_hours or lines["train"].at(options.steps) / 3600
        total += hours
        if night in (1, 30, 90, 180, options.simulate):
            print(f"| {night} | {hours:.3f} | {total:.1f} | {total * options.cpu_hour_price:.2f} |")


if __name__ == "__main__":
    main()
