"""`yanmo store gc`: removes what nothing refers to."""

from __future__ import annotations

from collections import defaultdict

from yanmo.common.errors import DataError
from yanmo.common.logs import human_bytes
from yanmo.store.objects import ObjectStore
from yanmo.tools.store.gc_plan import GcPlan, shown_age
from yanmo.tools.store.gc_planner import Ages, Planner
from yanmo.tools.store.gc_sweep import Sweep, Swept
from yanmo.tools.store.inventory import Inventory, take
from yanmo.tools.store.options import GcOptions


def run(store: ObjectStore, options: GcOptions) -> int:
    inventory = take(store)
    try:
        ages = Ages(options.older_than.seconds, options.abandoned.seconds, options.keep_runs)
        plan = Planner(store, inventory, ages).decide()
    except DataError as error:
        raise DataError(f"nothing was removed, as what it refers to is unknown: {error}") from error
    swept = Sweep(store, plan).run() if options.delete else None
    _print(inventory, plan, swept, options)
    return 0


def _print(inventory: Inventory, plan: GcPlan, swept: Swept | None, options: GcOptions) -> None:
    verb = "removed" if swept else "would remove"
    groups: dict[str, list[int]] = defaultdict(list)
    stayed = swept.stayed if swept else set()
    for one in plan.to_delete:
        if one.folder.name in stayed:
            continue  # printed below
        if one.is_whole:
            print(f"{verb} output {one.folder}, {human_bytes(one.bytes)}: {one.why}")
        else:
            groups[one.why] += [part.bytes for part in one.parts]
    for info in plan.runs:
        groups["the record of a run"].append(info.bytes)
    for loose, why in plan.loose:
        groups[why].append(loose.bytes)
    for why, sizes in sorted(groups.items()):
        print(f"{verb} {len(sizes)} object(s), {human_bytes(sum(sizes))}: {why}")
    for name, _ in plan.restore:
        done = "restored" if swept else "would restore"
        print(f"{done} {name[0]}/{name[1][:12]}: set aside, and needed again")
    for text in plan.dangling:
        print(f"dangling: {text}")
    for text in swept.spared if swept else []:
        print(f"spared {text}")
    if not plan.bytes and not plan.restore:
        young = sum(why.startswith("younger than") for why in plan.kept.values())
        print(
            f"nothing to remove: {len(plan.kept) - young} outputs are referred to, {young} others are "
            f"younger than {shown_age(options.older_than.seconds)} (--older-than)"
        )
    elif swept:
        print(f"freed {human_bytes(swept.bytes)} in {swept.objects} objects")
    else:
        print(f"{human_bytes(plan.bytes)} of {human_bytes(inventory.bytes)} would be freed; --delete does it")
