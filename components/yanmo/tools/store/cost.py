"""`yanmo store cost`: what nights, months and champions cost, at your prices.

Each output records its wall time, CPU time, GPU-hours and, where counters can be read, its energy
(formats/stage_cost.py). Here they are added up: an output counts for the run that made it, once, whoever uses
it later. What is not in the store is not counted: tries that failed or were paused before their output, and
outputs that gc removed; what a paused training did before is in the output that it became.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime

from yanmo.common.aligned_table import text_table
from yanmo.common.errors import DataError
from yanmo.formats.stage_cost import StageCost, stage_cost
from yanmo.nights.paid import shown_amount
from yanmo.nights.prices import Prices
from yanmo.nights.settings import prices_of
from yanmo.options.time_zone import zone_of
from yanmo.store.manifest import Reference, unsealed
from yanmo.store.objects import MAX_DOCUMENT_BYTES, ObjectStore
from yanmo.store.output import Output, find_output, open_reference
from yanmo.store.pointers import RECORD_SCHEMA
from yanmo.store.runs.run_record import is_run_record, parse_run, run_record_name
from yanmo.store.schema import parse
from yanmo.tools.store.chain import Opener
from yanmo.tools.store.find import print_json
from yanmo.tools.store.inventory import Inventory, take
from yanmo.tools.store.kept_runs import Newest
from yanmo.tools.store.options import CostOptions

log = logging.getLogger(__name__)


@dataclass
class Sum:
    """Cost of several outputs."""

    outputs: int = 0
    seconds: float = 0.0
    cpu_hours: float = 0.0
    gpu_hours: float = 0.0
    kwh: float | None = None
    """None where no output has measured any."""
    is_whole: bool = True
    """Whether time and GPU-hours of each output were measured, and energy of all or of none."""
    price: float = 0.0
    _without_kwh: int = field(default=0, repr=False)

    def add(self, cost: StageCost, prices: Prices) -> None:
        self.outputs += 1
        known = (cost.seconds, cost.cpu_seconds, cost.gpu_hours)
        self.seconds += cost.seconds or 0.0
        self.cpu_hours += (cost.cpu_seconds or 0.0) / 3600
        self.gpu_hours += cost.gpu_hours or 0.0
        if cost.kwh is None:
            self._without_kwh += 1
        else:
            self.kwh = (self.kwh or 0.0) + cost.kwh
        is_half = self.kwh is not None and self._without_kwh > 0
        self.is_whole = self.is_whole and None not in known and not is_half
        hours: dict[str, float | None] = {"gpu_hours": self.gpu_hours, "cpu_seconds": self.cpu_hours * 3600}
        self.price = prices.of({**hours, "seconds": self.seconds, "kwh": self.kwh}) or 0.0

    def to_json(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if not name.startswith("_")}


@dataclass
class _Costs:
    """Of one channel."""

    nights: dict[str, Sum] = field(default_factory=lambda: defaultdict(Sum))
    months: dict[str, Sum] = field(default_factory=lambda: defaultdict(Sum))
    champions: list[tuple[int, Reference, Sum]] = field(default_factory=list)


def run(store: ObjectStore, options: CostOptions) -> int:
    inventory, prices = take(store, leftovers=False), prices_of(options)
    made = _made(store, inventory)
    newest, found = Newest(zone=zone_of(options.timezone)), dict[str, _Costs]()
    for channel, run_id in sorted(_runs(store, inventory, options.channel)):
        costs = found.setdefault(channel, _Costs())
        for output in made.pop(run_id, ()):
            night = newest.night(datetime.fromisoformat(output.manifest.created_at).timestamp()).isoformat()
            cost = stage_cost(output)
            costs.nights[night].add(cost, prices)
            costs.months[night[:7]].add(cost, prices)
    for channel, number, record in _history(store, inventory, options.channel):
        costs = found.setdefault(channel, _Costs())
        costs.champions.append((number, record["model"], _of_champion(store, record.values(), prices)))
    if options.json:
        print_json({"currency": prices.currency, "channels": {n: _document(c) for n, c in found.items()}})
    elif not found:
        print(f"{store.uri}: no run of {options.channel or 'a channel'} is recorded")
    else:
        _print(found, prices.currency)
    return 0


def _made(store: ObjectStore, inventory: Inventory) -> dict[str, list[Output]]:
    """Run id -> the outputs that it made and that recorded a cost."""
    found: dict[str, list[Output]] = defaultdict(list)
    for folder in inventory.keys.values():
        try:
            output = find_output(store, folder.stage, folder.key) if folder.manifest else None
        except DataError as error:
            log.warning("not counted: %s", error)
            continue
        if output and output.manifest.run_id and output.entries("metrics.prom"):
            found[output.manifest.run_id].append(output)
    return found


def _runs(store: ObjectStore, inventory: Inventory, channel: str) -> set[tuple[str, str]]:
    """Channel and id of every run that made what a record of a run, or of the history, names."""
    named = [
        (info.name.split("/")[1], reference)
        for info in inventory.pointers
        if is_run_record(info.name)
        for reference in parse_run(store.read(info.name)[0], f"{store.uri}/{info.name}").values()
    ]
    named += [(of, one) for of, _, record in _history(store, inventory, channel) for one in record.values()]
    found = {(of, _run_of(store, one)) for of, one in named if channel in ("", of)}
    records = {info.name for info in inventory.pointers if is_run_record(info.name)}
    known = {name.rpartition("/")[2] for name in records}

    def is_elsewhere(of: str, run_id: str) -> bool:
        """Whether it was a run of another channel, and this one found its output."""
        record = run_record_name(of, run_id)
        return record not in records and record.rpartition("/")[2] in known

    return {(of, run_id) for of, run_id in found if run_id and not is_elsewhere(of, run_id)}


def _run_of(store: ObjectStore, reference: Reference) -> str:
    try:
        return open_reference(store, reference).manifest.run_id
    except DataError:
        return ""  # `yanmo store verify` is there for that


def _history(
    store: ObjectStore, inventory: Inventory, channel: str
) -> Iterator[tuple[str, int, dict[str, Reference]]]:
    """Channel, number, and what each record of a promotion names."""
    for info in sorted(inventory.pointers, key=lambda info: info.name):
        parts = info.name.split("/")
        if len(parts) == 4 and parts[2] == "history" and channel in ("", parts[1]):
            values = parse(unsealed(store.read(info.name)[0]), RECORD_SCHEMA, MAX_DOCUMENT_BYTES)
            if values.get("kind", "promotion") == "promotion":
                names = [name for name in ("model", "evaluation", "verdict") if values.get(name)]
                number = int(parts[3].removesuffix(".json"))
                yield parts[1], number, {name: Reference.from_dict(values[name]) for name in names}


def _of_champion(store: ObjectStore, record: Iterable[Reference], prices: Prices) -> Sum:
    """Of all that its record rests on."""
    found = Sum()
    try:
        chain = Opener(store).chain([open_reference(store, one) for one in record])
    except DataError as error:
        log.warning("a champion's cost is not whole: %s", error)
        found.is_whole = False
        return found
    for output in chain:
        if output.entries("metrics.prom"):
            found.add(stage_cost(output), prices)
    return found


def _document(costs: _Costs) -> dict[str, object]:
    champions = [
        {"number": n, "model": f"{model.stage}/{model.key}", **each.to_json()}
        for n, model, each in costs.champions
    ]
    nights = {night: each.to_json() for night, each in sorted(costs.nights.items())}
    months = {month: each.to_json() for month, each in sorted(costs.months.items())}
    return {"nights": nights, "months": months, "champions": champions}


def _print(found: dict[str, _Costs], currency: str) -> None:
    for channel, costs in found.items():
        print(f"channel {channel}")
        rows: list[tuple[str, ...]] = [
            ("", "outputs", "wall h", "CPU h", "GPU h", "kWh", f"cost {currency}".strip())
        ]
        rows += [(f"night {name}", *_cells(each)) for name, each in sorted(costs.nights.items())]
        rows += [(f"month {name}", *_cells(each)) for name, each in sorted(costs.months.items())]
        rows += [(f"champion {n} {m.stage}/{m.key[:12]}", *_cells(each)) for n, m, each in costs.champions]
        print("\n".join(text_table(rows)))


def _cells(each: Sum) -> Sequence[str]:
    kwh = "-" if each.kwh is None else f"{each.kwh:.3f}"
    more = "" if each.is_whole else "+"
    hours = (each.seconds / 3600, each.cpu_hours, each.gpu_hours)
    return (str(each.outputs), *(f"{value:.3f}" for value in hours), kwh, f"{shown_amount(each.price)}{more}")
