"""Which documents are in the output, and how often.

By default quotas count characters, not documents: quotas of 50,000 诗, 30,000 词, 20,000 文 and 10,000 赋
would raise prose, whose documents are long, from 69 % to 83 % of all characters in the corpus from which the
bundled one is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from yanmo.balance.augmentation.augment import COLUMNS, REPEAT, Augmentation, augmenter, copy_digest
from yanmo.balance.document_table import DRAWN, Rows, chosen_rows, parts_of, token_count
from yanmo.balance.quotas.filling import choose
from yanmo.balance.quotas.targets import OTHERS, Quota, QuotaPlan, Target, parse_plan
from yanmo.common.errors import DataError, UsageError
from yanmo.common.words import did_you_mean, some_of
from yanmo.engine.maps import ordered_map
from yanmo.formats.records import GENRE_ALIASES

_COPIES = """
create or replace table copies as
select position, class, if($copy = 0, id, sha256(id || chr(0) || 'repeat' || chr(0) || $copy)) as id,
    characters, tokens
from rows where class in (select class from wanted where units > 0)
"""
"""The documents of the classes that want more, as copies of this number. id: as `copy_digest` makes it."""

_GOALS = """
create or replace table goals as
select class, units as target from wanted join (
    select class, sum({units})::bigint as whole from copies group by class
) using (class) where units > 0 and units < whole
"""
"""Classes that want some of these copies."""

_DRAWN = f"""
create or replace table drawn as
select class, position, units, row_number() over by_digest - 1 as number,
    (sum(units) over by_digest)::bigint as filled
from (
    select class, position, {DRAWN} as digest, units
    from (
        select class, position, rows.id as id, {{units}} as units
        from copies join (select position, id from rows) as rows using (position)
        where class in (select class from goals)
    )
    where units > 0
)
window by_digest as (partition by class order by digest, position rows unbounded preceding)
"""

_PICKED = """
insert into picked
select position, $copy, id, class, characters, tokens
from copies anti join goals using (class)
union all
select position, $copy, id, class, characters, tokens
from copies semi join (from drawn semi join taken using (class, number)) using (position)
"""

_WANTED = """
create or replace table wanted as
select class, (units - held)::bigint as units
from wanted join (select class, sum({units})::bigint as held from copies group by class) using (class)
where class not in (select class from goals)
"""


def plan_of_classes(quotas: str, groups: Iterable[str], by: str) -> QuotaPlan:
    """`--quotas` with classes spelled as in the documents, and `*` replaced by the classes without a quota.

    Raises:
        UsageError: a quota for an unknown class, two quotas for a class, or none where all need one.
    """
    plan, names = parse_plan(quotas), list(groups)
    found: dict[str, Quota] = {}
    for written, quota in plan.quotas.items():
        name = _spelled(written, names, by)
        if name == OTHERS:
            continue
        if name not in names:
            hint = did_you_mean(written, names)
            raise UsageError(
                f"--quotas: no documents of {by} {written}{hint}; there are {some_of(names)}: name one"
            )
        if name in found:
            raise UsageError(f"--quotas: {name} is named twice: keep one")
        found[name] = quota
    rest = [name for name in names if name not in found]
    if OTHERS in plan.quotas:
        found |= dict.fromkeys(rest, plan.quotas[OTHERS])
    elif plan.is_relative and plan.exponent is None and rest:
        raise UsageError(f"--quotas: no weight for {some_of(rest)}; name them, or give *=1w (or *=0w)")
    return QuotaPlan(found, plan.exponent)


def _spelled(written: str, names: list[str], by: str) -> str:
    if written in names or written == OTHERS:
        return written
    parts = zip(written.split("/"), parts_of(by), strict=False)
    return "/".join(GENRE_ALIASES.get(value, value) if part == "genre" else value for value, part in parts)


@dataclass(frozen=True)
class Picker:
    """Fills targets: every document of a class once, again ..., then some of them, to what is missing."""

    files: Sequence[Path]
    """Of the train split, for tasks."""
    rows: Rows
    unit: str
    """characters, documents or tokens."""
    seed: int
    max_repeats: int
    workers: int = 1
    tokenizer: Path | None = None
    augmentation: Augmentation | None = None

    @property
    def units(self) -> str:
        """SQL for the units of a document or copy."""
        return "1::bigint" if self.unit == "documents" else f"copies.{self.unit}::bigint"

    def available(self) -> dict[str, int]:
        """Return the units of each class, unchanged by augmentation, by name."""
        query = f"select class, sum({self.units})::bigint from rows as copies group by class order by class"
        return dict(self.rows.tables.rows(query))

    def pick(self, targets: Mapping[str, Target]) -> None:
        """Make the table `picked` of the documents of the output: copies included, number 0 is the document.

        Raises:
            DataError: nothing is left.
        """
        tables = self.rows.tables
        units = [targets[name].units for name in targets]
        tables.add("wanted", **{"class": pa.array(targets, pa.string())}, units=pa.array(units, pa.int64()))
        tables.run("alter table wanted alter class type class")
        tables.run("""
            create or replace table picked (
                position integer, copy integer, id varchar, class class, characters integer, tokens integer
            )
        """)
        for copy in range(self.max_repeats):
            if not tables.value("select count(*) from wanted where units > 0"):
                break
            self._make_copies(copy)
            tables.run(_GOALS.format(units=self.units))
            tables.run(_DRAWN.format(units=self.units), seed=str(self.seed))
            choose(tables)
            tables.run(_PICKED, copy=copy)
            tables.run(_WANTED.format(units=self.units))
        if not tables.value("select count(*) from picked"):
            raise DataError("the quotas leave no document in train; raise --quotas")

    def _make_copies(self, copy: int) -> None:
        tables = self.rows.tables
        tables.run(_COPIES, copy=copy)
        if not copy or not self.augmentation:
            return
        tables.run("create or replace table repeated as from rows semi join copies using (position)")
        tables.run("delete from copies")
        by_file = tables.by_file(
            "select position, file, row, class, characters, tokens from repeated order by file, row"
        )
        tasks = (
            _Measure(self.files[number], rows, copy, self.augmentation, self.tokenizer)
            for number, rows in by_file
        )
        with ordered_map(measure_copies, tasks, self.workers) as results:
            for measured in results:
                tables.append("copies", **{name: measured[name] for name in measured.column_names})


class _Measure(NamedTuple):
    """Copies of number `copy` of one file's documents, of which the sizes are asked."""

    path: Path
    rows: pa.Table
    copy: int
    augmentation: Augmentation
    tokenizer: Path | None


def measure_copies(task: _Measure) -> pa.Table:
    """Return the position, class, id, characters and tokens of each copy."""
    ids: list[str] = []
    characters, tokens = (task.rows[name].to_numpy().copy() for name in ("characters", "tokens"))
    for first, table in chosen_rows(task.path, task.rows["row"].to_numpy(), COLUMNS):
        made = augmenter(task.augmentation).of_table(table, [task.copy] * len(table))
        named = zip(table["id"].to_pylist(), made, strict=True)
        ids += [copy_digest(id, task.copy, one).hex() for id, one in named]
        changed = [i for i, one in enumerate(made) if one.rule != REPEAT]
        texts = [made[i].text for i in changed]
        places = np.array(changed, np.int64) + first
        characters[places] = [len(text) - text.count("\n") for text in texts]
        tokens[places] = token_count(task.tokenizer).of(texts)
    columns = {"position": task.rows["position"], "class": task.rows["class"], "id": ids}
    return pa.table({**columns, "characters": characters, "tokens": tokens})
