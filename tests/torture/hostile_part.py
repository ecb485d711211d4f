"""`tests/hostile` as a part of the torture: every family, each of its cases, on a store of its own."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable

from hostile.cases import Case, attempt
from hostile.engine import Engine
from hostile.families import FAMILIES
from hostile.ground import Ground as Store
from hostile.s3_ground import FAMILIES as OF_A_BUCKET
from hostile.s3_ground import is_of_a_bucket, open_s3_ground

from torture.ground import Ground, Record, say

_FRESH = 20
"""One command in so many is started by itself, as from a shell; the others are forked."""
_IN_BUCKET = 10
"""In a bucket every so many-th case is tried: most of them take ten times as long."""


def run(ground: Ground, record: Record, sample: int = 0) -> None:
    """Every case, family by family; in a bucket every tenth of those that are of one.

    Args:
        sample: how many of each family are drawn; 0 is all.
    """
    folder = ground.folder / "hostile"
    in_bucket = ground.kind == "s3"
    place = open_s3_ground(folder) if in_bucket else contextlib.nullcontext(Store(folder))
    with place as store:
        for family in OF_A_BUCKET if in_bucket else FAMILIES:
            if record.has("hostile", family):
                continue
            chosen = list(FAMILIES[family](ground.seed, store, False))
            if in_bucket:
                chosen = list(filter(is_of_a_bucket, chosen))[ground.seed % _IN_BUCKET :: _IN_BUCKET]
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
