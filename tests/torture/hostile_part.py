"""`tests/hostile` as a part of the torture: every family, each of its cases, on a store of its own."""

from __future__ import annotations

import random
from collections.abc import Iterable

from hostile.cases import Case, attempt
from hostile.engine import Engine
from hostile.families import FAMILIES
from hostile.ground import Ground as Store

from torture.ground import Ground, Record, say

_FRESH = 20
"""One command in so many is started by itself, as from a shell; the others are forked."""


def run(ground: Ground, record: Record, sample: int = 0) -> None:
    """Every case, family by family.

    Args:
        sample: how many of each family are drawn; 0 is all.
    """
    if ground.kind != "file":
        return
    store = Store(ground.folder / "hostile")
    for family, cases in FAMILIES.items():
        if record.has("hostile", family):
            continue
        chosen = list(cases(ground.seed, store, False))
        if sample:
            chosen = random.Random(f"{ground.seed}/{family}").sample(chosen, min(sample, len(chosen)))
        record.case("hostile", family, lambda chosen=chosen: _try_all(chosen, store))  # type: ignore[misc]


def _try_all(chosen: Iterable[Case], store: Store) -> tuple[str, list[str]]:
    engine, tried, bad = Engine(), 0, []
    try:
        for case in chosen:
            found = attempt(case, store, engine, forked=tried % _FRESH != 0)
            tried += 1
            if found.findings:
                bad.append(f"{case.name}: {'; '.join(found.findings)}")
                say(f"    {bad[-1][:300]}")
    finally:
        engine.close()
    return f"{tried} cases, {len(bad)} bad", bad
