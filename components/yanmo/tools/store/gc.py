"""`yanmo store gc`: removes what nothing refers to."""

from __future__ import annotations

from collections import defaultdict

from yanmo.common.errors import DataError
from yanmo.common.logs import human_bytes
from yanmo.store.objects import Leftover, ObjectInfo, ObjectStore
from yanmo.tools.store.gc_plan import Ages, GcPlan, shown_age
from yanmo.tools.store.gc_planner import Planner
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
        elif options.explain:
            what = f"{len(one.parts)} object(s) of {one.folder}"
            print(f"{verb} {what}, {human_bytes(one.bytes)}: {one.why}")
        else:
            groups[one.why] += [part.bytes for part in one.parts]
    for info in plan.runs:
        groups["the record of a run"].append(info.bytes)
    for info, why in plan.loose:
        groups[why].append(info.bytes)
    for leftover in plan.leftovers:
        groups[leftover.what].append(leftover.bytes)
    for why, sizes in sorted(groups.items()):
        print(f"{verb} {len(sizes)} object(s), {human_bytes(sum(sizes))}: {why}")
    if options.explain:
        _explain(inventory, plan)
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
            f"younger than {shown_age(options.older_than.seconds)} (--older-than); --explain says why each "
            "stays"
        )
    elif swept:
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
        "pages of nights": [*inventory.nights],
        "not of the store's making": [*inventory.strays, *inventory.foreign],
    }
    for what, infos in kept.items():
        if infos:
            names = ", ".join(info.name for info in infos[:5]) + (", ..." if len(infos) > 5 else "")
            print(f"keep {len(infos)} object(s), {human_bytes(sum(o.bytes for o in infos))}: {what}: {names}")
