"""Remove what nothing refers to. A dry run by default shows what would be removed, and why; --delete does it.

Removed: outputs that no pointer, history, live run or other kept output refers to; attempts that were never
committed; manifests that --force replaced; work of finished runs, expired leases, KFP's files, probes,
temporary files and unfinished uploads. All of it only where it was last written longer ago than --older-than.

Never removed: what a pointer, a record of a history, a live run, an unfinished run that may go on, or a young
output refers to, through inputs and parts down to the raw files' digests. Safe while runs are at work
(gc_sweep.py says why). Give an age longer than your longest pipeline: between two of its tasks a reference
may be in KFP only.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

from yanmo.common.errors import DataError, UsageError
from yanmo.common.logs import human_bytes
from yanmo.options.values import Bounds, brief, number_in
from yanmo.store.objects import Leftover, ObjectInfo, ObjectStore
from yanmo.tools.store.find import print_json
from yanmo.tools.store.gc_plan import Ages, GcPlan
from yanmo.tools.store.gc_planner import Planner
from yanmo.tools.store.gc_sweep import Sweep, Swept
from yanmo.tools.store.inventory import Inventory, take

HELP = "remove what nothing refers to (a dry run unless --delete)"
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_AGE = Bounds(most=100 * 365 * 86400)
"""A hundred years, in seconds."""


def parse_age(text: str) -> float:
    """Seconds in an age such as 90s, 30m, 12h, 7d or 2w."""
    number = None if " " in text else number_in(text[:-1])
    unit = _UNITS.get(text[-1:])
    seconds = 0.0 if text == "0" else None if number is None or unit is None else number * unit
    if seconds is None or not _AGE.hold(seconds):
        expected = "an age such as 90s, 30m, 12h, 7d or 2w, up to a hundred years"
        raise argparse.ArgumentTypeError(f"{brief(text)}: expected {expected}")
    return seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--delete", action="store_true", help="do it; by default only show what would be removed"
    )
    parser.add_argument(
        "--older-than", type=parse_age, default=parse_age("7d"), metavar="AGE",
        help="only what was last written so long ago: 90s, 12h, 7d, 2w (default: 7d)",
    )  # fmt: skip
    parser.add_argument(
        "--abandoned", type=parse_age, default=parse_age("30d"), metavar="AGE",
        help="work (checkpoints) of a run that never finished is removed after this (default: 30d)",
    )  # fmt: skip
    parser.add_argument("--explain", action="store_true", help="show also what is kept, and why")
    parser.add_argument("--json", action="store_true", help="for scripts: one JSON document")


def run(store: ObjectStore, args: argparse.Namespace) -> int:
    if args.abandoned < args.older_than:
        raise UsageError("--abandoned is shorter than --older-than: expected at least as long")
    inventory = take(store)
    try:
        plan = Planner(store, inventory, Ages(args.older_than, args.abandoned)).decide()
    except DataError as error:
        raise DataError(f"nothing was removed, as what it refers to is unknown: {error}") from error
    swept = Sweep(store, plan).run() if args.delete else None
    if args.json:
        print_json(_document(plan, swept))
        return 0
    _print(inventory, plan, swept, args)
    return 0


def _document(plan: GcPlan, swept: Swept | None) -> dict[str, object]:
    return {
        "deleted": swept is not None,
        "bytes": plan.bytes if swept is None else swept.bytes,
        "keys": [
            {
                "output": "/".join(one.folder.name),
                "whole": one.is_whole,
                "objects": [part.name for part in one.parts],
                "bytes": one.bytes,
                "why": one.why,
            }
            for one in plan.to_delete
        ],
        "loose": [info.name for info, _ in plan.loose],
        "leftovers": [leftover.name for leftover in plan.leftovers],
        "kept": {"/".join(name): why for name, why in sorted(plan.kept.items())},
        "dangling": plan.dangling,
        "spared": swept.spared if swept else [],
    }


def _print(inventory: Inventory, plan: GcPlan, swept: Swept | None, args: argparse.Namespace) -> None:
    verb = "removed" if swept else "would remove"
    groups: dict[str, list[int]] = defaultdict(list)
    stayed = swept.stayed if swept else set()
    for one in plan.to_delete:
        if one.folder.name in stayed:
            continue  # printed below
        if one.is_whole:
            print(f"{verb} output {one.folder}, {human_bytes(one.bytes)}: {one.why}")
        elif args.explain:
            what = f"{len(one.parts)} object(s) of {one.folder}"
            print(f"{verb} {what}, {human_bytes(one.bytes)}: {one.why}")
        else:
            groups[one.why] += [part.bytes for part in one.parts]
    for info, why in plan.loose:
        groups[why].append(info.bytes)
    for leftover in plan.leftovers:
        groups[leftover.what].append(leftover.bytes)
    for why, sizes in sorted(groups.items()):
        print(f"{verb} {len(sizes)} object(s), {human_bytes(sum(sizes))}: {why}")
    if args.explain:
        _explain(inventory, plan)
    for name, _ in plan.restore:
        done = "restored" if swept else "would restore"
        print(f"{done} {name[0]}/{name[1][:12]}: set aside, and needed again")
    for text in plan.dangling:
        print(f"dangling: {text}")
    for text in swept.spared if swept else []:
        print(f"spared {text}")
    if swept:
        print(f"freed {human_bytes(swept.bytes)} in {swept.objects} objects")
    else:
        print(f"{human_bytes(plan.bytes)} of {human_bytes(inventory.bytes)} would be freed; --delete does it")


def _explain(inventory: Inventory, plan: GcPlan) -> None:
    to_delete = {one.folder.name: one for one in plan.to_delete}
    for name, folder in sorted(inventory.keys.items()):
        why = plan.kept.get(name)
        if why is None and name not in to_delete:
            why = "not old enough, or unfinished work that may go on"
        if why:
            print(f"keep {folder}, {human_bytes(folder.bytes)}: {why}")
    kept: dict[str, list[ObjectInfo | Leftover]] = {
        "digests of raw files": [*inventory.sources],
        "not of the store's making": [*inventory.strays, *inventory.foreign],
    }
    for what, infos in kept.items():
        if infos:
            names = ", ".join(info.name for info in infos[:5]) + (", ..." if len(infos) > 5 else "")
            print(f"keep {len(infos)} object(s), {human_bytes(sum(o.bytes for o in infos))}: {what}: {names}")
