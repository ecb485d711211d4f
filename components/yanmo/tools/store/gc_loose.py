"""What gc may remove of what belongs to no key: records of runs, probes, KFP's files, temporary files."""

from __future__ import annotations

import logging
from collections.abc import Callable

from yanmo.common.errors import DataError
from yanmo.store.objects import ObjectStore
from yanmo.store.runs.auto_record import is_auto_record, read_record
from yanmo.store.runs.in_use import LEASE
from yanmo.store.runs.lease import is_held
from yanmo.store.runs.unfinished import is_unfinished_record
from yanmo.tools.store.gc_plan import GcPlan
from yanmo.tools.store.inventory import Inventory, KeyFolder

log = logging.getLogger(__name__)
SETTLED_SECONDS = 2.0
"""Nothing that a lease does not guard is removed younger than this: its writer may be at it now. (The
temporary files of a folder are locked while they are written, a moment after they appear.)"""

_PROBE_SECONDS = 3600.0
"""A probe that goes too early says that the server ignores conditional writes; a slow one may be asked."""


def judge_loose(
    store: ObjectStore,
    inventory: Inventory,
    plan: GcPlan,
    older_than: float,
    is_worked_at: Callable[[KeyFolder], bool],
) -> None:
    """Add to a plan what is to go of it.

    Args:
        plan: says which keys are kept.
        older_than: seconds.
        is_worked_at: whether a key without an output has work that may go on.
    """
    before = store.clock() - max(older_than, SETTLED_SECONDS)
    for info in inventory.runs:
        if info.modified > before or is_unfinished_record(info.name):
            continue
        if not is_auto_record(info.name):
            plan.loose.append((info, "how a run ended"))
        elif not _is_needed(store, inventory, plan, info.name, is_worked_at):
            plan.loose.append((info, "what `auto` became, of an output that is gone"))
    for info in inventory.probes:
        if info.modified <= min(before, store.clock() - _PROBE_SECONDS):
            plan.loose.append((info, "a probe of conditional writes"))
    newest: dict[str, float] = {}
    for info in inventory.kfp:
        run = local_run(info.name)
        newest[run] = max(newest.get(run, 0.0), info.modified)
    gone = {r for r, modified in newest.items() if modified <= before and not is_held(store, f"{r}/{LEASE}")}
    plan.loose += [(i, "KFP's files of a finished run") for i in inventory.kfp if local_run(i.name) in gone]
    for leftover in inventory.leftovers:
        if store.clock() - leftover.modified >= older_than:
            plan.leftovers.append(leftover)


def local_run(name: str) -> str:
    """The folder of `yanmo run` that an object lies in, kfp/<run>; "" for others."""
    return "/".join(name.split("/")[:2]) if name.startswith("kfp/") else ""


def _is_needed(
    store: ObjectStore,
    inventory: Inventory,
    plan: GcPlan,
    name: str,
    is_worked_at: Callable[[KeyFolder], bool],
) -> bool:
    """Return whether the key of a record of `auto` is kept or worked at; true where nobody can say."""
    try:
        record = read_record(store, name)
    except DataError as error:
        log.warning("%s. It stays", error)
        return True
    folder = inventory.keys.get((record.stage, record.key)) if record else None
    return folder is not None and (folder.name in plan.kept or is_worked_at(folder))
