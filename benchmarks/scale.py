"""What a training costs before anybody rents it: time, memory, network, money, for 1 to thousands of GPUs.

    python benchmarks/scale.py --parameters 7e9 --gpus 8,64,256
    python benchmarks/scale.py --parameters 7e9 --gpus 64 --network 12.5 --tokens 1e12 --gpu-hour-price 2
    python benchmarks/scale.py --measure       # 15 minutes: what it predicts for 1, 2 and 4 ranks here
    python benchmarks/scale.py --docs          # writes docs/scale.md and docs/scale.zh.md

For each number of GPUs it takes, of ZeRO-1, 2 and 3 with and without recomputation, the simplest way that
fits into a GPU's memory by the estimate of `yanmo train` and is within 3 % of the fastest. A row says what an
added GPU gives of what one gave before. Each constant of the machine can be given (--network, --memory,
--peak ...); docs/scale.md says where each one comes from. The model is scale_model.py, the machines are
scale_machine.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
from pathlib import Path

from scale_machine import MACHINES, Machine
from scale_model import checkpoint_bytes
from scale_plan import Case, shape
from scale_prices import PriceOptions, Prices
from scale_tables import billions, duration, number, user_rows

from yanmo.common.errors import UsageError
from yanmo.options.command_line import load

ROOT = Path(__file__).parents[1]
MEASURED = Path(__file__).parent / "scale_measured.json"
CONSTANTS = {
    "--peak": ("peak_flops", 1e12, "peak of a GPU, TFLOP/s, dense bf16"),
    "--full-share": ("full_share", 1.0, "share of the peak that a very wide model reaches, 0 to 1"),
    "--memory": ("memory_gib", 1.0, "memory of a GPU, GiB"),
    "--memory-bandwidth": ("memory_bandwidth", 1e12, "of a GPU, TB/s"),
    "--link": ("link_bandwidth", 1e9, "of a GPU inside its node, one direction, GB/s"),
    "--network": ("network_bandwidth", 1e9, "of a whole node to the others, one direction, GB/s"),
    "--node-memory": ("host_memory", 1e9, "of a node, GB"),
    "--store": ("store_bandwidth", 1e9, "of the store for checkpoints, GB/s"),
    "--watts": ("watts", 1.0, "of a GPU"),
    "--failure-hours": ("failure_hours", 1.0, "of one GPU between failures that stop a training"),
}
"""Option -> constant of a machine, unit, help."""


def positive(text: str) -> float:
    """A number above 0, as 7e9, 70000 or 0.5."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
    return value


def several(text: str) -> list[float]:
    """Numbers above 0, with commas."""
    return [positive(part) for part in text.split(",")]


def counts(text: str) -> list[int]:
    """Whole numbers from 1 to 10,000, with commas, sorted."""
    found = sorted({int(part) for part in text.split(",")})
    if not 1 <= found[0] <= found[-1] <= 10_000:
        raise argparse.ArgumentTypeError(f"expected numbers from 1 to 10,000, found {text}")
    return found


def stages(text: str) -> list[int]:
    """ZeRO stages, with commas."""
    found = sorted({int(part) for part in text.split(",")})
    if not set(found) <= {1, 2, 3}:
        raise argparse.ArgumentTypeError(f"expected 1, 2, 3 or some of them, found {text}")
    return found


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = found.add_argument
    add("--parameters", type=several, help="of the model, embedding and head too: 7e9, or 1e9,7e9")
    add("--gpus", type=counts, default=[8, 16, 32, 64, 128, 256], help="numbers of GPUs, with commas")
    add("--gpu", default="h100", choices=tuple(MACHINES), help="what the nodes are made of")
    add("--gpus-per-node", type=int, default=0)
    add("--tokens", type=positive, default=0.0, help="to train on; default: 20 for each parameter")
    add("--context", type=int, default=4096, help="positions of a row")
    add("--batch-tokens", type=int, default=0, help="of a step; default: by the size, as GPT-3's")
    add("--vocabulary", type=int, default=32_768)
    add("--optimizer", default="adamw", choices=("adamw", "muon"))
    add(
        "--valid-characters", type=int, default=0, help="of a validation; under ZeRO-3 it needs a whole model"
    )
    add("--stages", type=stages, default=[1, 2, 3], help="ZeRO stages to choose from, with commas")
    for name, (_, _, what) in CONSTANTS.items():
        add(name, type=positive, help=f"instead of the GPU's own: {what}")
    for name in ("--gpu-hour-price", "--kwh-price", "--currency"):
        add(name, help="what that costs, or what it is in; without a price none is shown")
    add("--measure", action="store_true", help="measure 1, 2 and 4 ranks here; writes scale_measured.json")
    add("--repeats", type=int, default=15, help="rounds of --measure")
    add("--steps", type=int, default=1, help="steps of a block of --measure")
    add("--docs", action="store_true", help="write docs/scale.md and docs/scale.zh.md")
    return found


def machine_of(asked: argparse.Namespace) -> Machine:
    """The nodes, with what was given instead."""
    found = MACHINES[asked.gpu]
    given = {field: getattr(asked, name[2:].replace("-", "_")) for name, (field, _, _) in CONSTANTS.items()}
    units = {field: unit for field, unit, _ in CONSTANTS.values()}
    if asked.gpus_per_node:
        found = dataclasses.replace(found, ranks_per_node=asked.gpus_per_node)
    return dataclasses.replace(found, **{k: v * units[k] for k, v in given.items() if v is not None})


def prices_of(asked: argparse.Namespace) -> Prices:
    """By flags.

    Raises:
        UsageError: one of them is no price.
    """
    names = ("gpu_hour_price", "kwh_price", "currency")
    given = {name: getattr(asked, name) for name in names}
    flags = [f"--{n.replace('_', '-')}={v}" for n, v in given.items() if v is not None]
    found = load(PriceOptions, flags, "scale")
    return Prices(gpu_hour=found.gpu_hour_price, kwh=found.kwh_price, currency=found.currency)


def show(asked: argparse.Namespace) -> None:
    """The table of a user's own case.

    Raises:
        UsageError: the options contradict each other.
    """
    machine, prices = machine_of(asked), prices_of(asked)
    for parameters in asked.parameters:
        case = Case(
            shape=shape(parameters, asked.vocabulary),
            vocab_size=asked.vocabulary,
            context=asked.context,
            batch_tokens=asked.batch_tokens,
            tokens=asked.tokens,
            optimizer=asked.optimizer,
            valid_characters=asked.valid_characters,
        )
        print(heading(case, machine), user_rows(case, asked.gpus, machine, prices, asked.stages), sep="\n\n")
        most, size = asked.gpus[-1], checkpoint_bytes(case.options(1, machine), case.vocab_size)
        into, between = size / machine.store_bandwidth, 3600 * machine.failure_hours / most
        print(
            f"\nA checkpoint has {number(size / 1e9)} GB: {duration(into)} into the store. "
            f"With {most:,} GPUs one fails every {duration(between)}.\n"
            "All this is predicted: no GPU was measured.\n"
        )


def heading(case: Case, machine: Machine) -> str:
    """What is trained, on what."""
    o, m, share = case.shape, machine, machine.compute_share(case.shape["width"])
    return (
        f"{billions(case.parameters)} B parameters: {o['layers']} layers, width {o['width']:,}, "
        f"{o['heads']} / {o['kv_heads']} heads of {o['head_width']}, feed-forward {o['feed_forward']:,}\n"
        f"{billions(case.all_tokens)} B tokens, batch {case.rows:,} rows of {case.context:,}\n"
        f"{m.name}: {m.peak_flops / 1e12:.0f} TFLOP/s, of which {100 * share:.0f} % at this width, "
        f"{m.memory_gib:g} GiB; {m.ranks_per_node} a node, {m.network_bandwidth / 1e9:g} GB/s between nodes\n"
        "Where each constant comes from: docs/scale.md"
    )


def main(arguments: list[str] | None = None) -> int:
    asked = parser().parse_args(arguments)
    if asked.measure:
        import json

        from scale_measure import measure

        command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "?"
        found = measure(asked.repeats, asked.steps, commit)
        MEASURED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if asked.docs:
        from scale_pages import write

        write(ROOT / "docs")
    if asked.parameters:
        try:
            show(asked)
        except UsageError as error:
            print(f"scale.py: {error}", file=sys.stderr)
            return 64
    elif not (asked.measure or asked.docs):
        print("scale.py: give --parameters, as --parameters 7e9; --help says more", file=sys.stderr)
        return 64
    return 0


if __name__ == "__main__":
    sys.exit(main())
