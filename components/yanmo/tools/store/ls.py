"""`yanmo store ls`: lists a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from yanmo.common.aligned_table import text_table
from yanmo.common.errors import DataError
from yanmo.common.logs import human_bytes, human_seconds
from yanmo.common.words import some_of
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, find_output
from yanmo.tools.store.chain import edges
from yanmo.tools.store.find import print_json
from yanmo.tools.store.inventory import Inventory, KeyFolder, KeyName, is_working, take
from yanmo.tools.store.options import LsOptions
from yanmo.tools.store.pointed import Named, read_undamaged

_DAY = 86400


@dataclass(frozen=True, kw_only=True)
class Row:
    """One key as it is listed."""

    stage: str
    key: str
    status: str
    """done, damaged (its manifest), working (a live lease), stopped (work without an output), uncommitted."""
    bytes: int
    """With its work."""
    age_seconds: int
    """Seconds since anything of it was last written."""
    made_at: str
    """UTC, ISO 8601; empty where nothing is committed."""
    pointers: list[str]
    used_by: list[str]
    """Outputs that have it as input or part."""


def run(store: ObjectStore, options: LsOptions) -> int:
    inventory = take(store, leftovers=False)
    of_channel = f"pointers/{options.channel}/" if options.channel else ""
    named, damaged = read_undamaged(store, [i for i in inventory.pointers if i.name.startswith(of_channel)])
    rows = [row for row in _rows(store, inventory, named) if not options.stage or row.stage == options.stage]
    if options.channel:
        rows = [row for row in rows if row.pointers]
    if options.json:
        print_json(_document(store, inventory, named, rows) | {"damaged_pointers": damaged})
    else:
        _print(store, inventory, named, rows, options)
        for by, why in damaged.items():
            print(f"\ndamaged: {by}: {why}")
    return 0


def _rows(store: ObjectStore, inventory: Inventory, named: Sequence[Named]) -> list[Row]:
    pointers: dict[KeyName, set[str]] = defaultdict(set)
    for one in named:
        pointers[one.reference.stage, one.reference.key].add(one.by)
    outputs = {folder.name: _open(store, folder) for folder in inventory.keys.values() if folder.manifest}
    users: dict[KeyName, set[str]] = defaultdict(set)
    for found in outputs.values():
        for edge in edges(found.manifest) if found else ():
            users[edge.reference.stage, edge.reference.key].add(f"{found}")
    now = store.clock()
    result = []
    for name in sorted(inventory.keys):
        folder, output = inventory.keys[name], outputs.get(name)
        result.append(
            Row(
                stage=folder.stage,
                key=folder.key,
                status=_status(store, folder, output),
                bytes=folder.bytes + sum(info.bytes for info in folder.work),
                age_seconds=max(0, int(now - folder.modified)),
                made_at=output.manifest.created_at if output else "",
                pointers=sorted(pointers[name]),
                used_by=sorted(users[name]),
            )
        )
    return result


def _open(store: ObjectStore, folder: KeyFolder) -> Output | None:
    try:
        return find_output(store, folder.stage, folder.key)
    except DataError:
        return None


def _status(store: ObjectStore, folder: KeyFolder, output: Output | None) -> str:
    if is_working(store, folder):
        return "working"
    if folder.manifest:
        return "done" if output else "damaged"
    return "stopped" if folder.checkpoints else "uncommitted"


def _document(
    store: ObjectStore, inventory: Inventory, named: Sequence[Named], rows: Sequence[Row]
) -> dict[str, object]:
    return {
        "store": store.uri,
        "bytes": inventory.bytes,
        "pointers": {n.by: f"{n.reference.stage}/{n.reference.key}" for n in named if n.is_pointer},
        "outputs": [asdict(row) for row in rows],
        "strays": [info.name for info in inventory.strays],
    }


def _print(
    store: ObjectStore,
    inventory: Inventory,
    named: Sequence[Named],
    rows: Sequence[Row],
    options: LsOptions,
) -> None:
    done = sum(row.status == "done" for row in rows)
    print(f"{store.uri}: {human_bytes(inventory.bytes)}; {done} outputs shown")
    pointers = [n for n in named if n.is_pointer]
    if pointers and not options.stage:
        print()
        table = [("pointer", "names", "moved")]
        for one in pointers:
            target = f"{one.reference.stage}/{one.reference.key[:12]}"
            table.append((one.by, target, f"{age(store.clock() - one.modified)} ago"))
        _print_table(table)
    if rows:
        print()
        heading = ("output", "status", "size", "age", "named by")
        _print_table([heading, *(_cells(row) for row in rows)])
    if inventory.strays:
        names = some_of([info.name for info in inventory.strays])
        print(f"\nnot of the store's making: {len(inventory.strays)} object(s), {names}")


def _print_table(table: Sequence[Sequence[str]]) -> None:
    """The last column is words of any length: the others make the table."""
    for line, row in zip(text_table([row[:-1] for row in table]), table, strict=True):
        print(f"{line}  {row[-1]}")


def _cells(row: Row) -> tuple[str, ...]:
    names = row.pointers[:3] + [f"{len(row.pointers) - 3} more"] * (len(row.pointers) > 3)
    if not names and row.used_by:
        names = [f"used by {row.used_by[0]}" + f" and {len(row.used_by) - 1} more" * (len(row.used_by) > 1)]
    shown_names = ", ".join(names) or "nobody"
    size, since = human_bytes(row.bytes), age(row.age_seconds)
    return f"{row.stage}/{row.key[:12]}", row.status, size, since, shown_names


def age(seconds: float) -> str:
    """An age as a person says it: `3 min 20 s`, `2 h 05 min`, `12 d`."""
    return f"{int(seconds // _DAY)} d" if seconds >= 2 * _DAY else human_seconds(max(0.0, seconds))
