"""What a channel's trainings held, night by night: the hours of GPUs and of processor cores.

    pointers/<channel>/records/spending.json

Hours, not money: prices change. A training with a budget adds to it while it runs and reads it at its start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo.store.channel.document import change_document, document_name, parsed, read_document
from yanmo.store.objects import ObjectStore

SPENDING_SCHEMA = "yanmo.spending/1"
SPENDING = "spending"
_MOST_NIGHTS = 400
"""The oldest go first."""
Nights = dict[str, "Hours"]
"""The evening of a night, YYYY-MM-DD -> what was held in it."""


@dataclass(frozen=True)
class Hours:
    """How long GPUs and cores were held, in hours."""

    gpu: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: Hours) -> Hours:
        return Hours(self.gpu + other.gpu, self.cpu + other.cpu)

    def price(self, gpu_hour: float, cpu_hour: float) -> float:
        """What they cost, at a price for each kind of hour."""
        return self.gpu * gpu_hour + self.cpu * cpu_hour

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Hours:
        """Raises ValueError for anything but two numbers that can be."""
        found = cls(float(values["gpu"]), float(values["cpu"]))
        if not all(math.isfinite(value) and value >= 0 for value in (found.gpu, found.cpu)):
            raise ValueError(f"expected hours, found {found}")
        return found


def held_in(nights: Nights, evening: str) -> dict[str, Hours]:
    """What was held in the `night` of that evening, and in its `month`."""
    of_month = (hours for night, hours in nights.items() if night[:7] == evening[:7])
    return {"night": nights.get(evening, Hours()), "month": sum(of_month, Hours())}


def make_spending(values: Mapping[str, Any]) -> Nights:
    """The document as nights."""
    return {str(night): Hours.read(each) for night, each in values["nights"].items()}


def read_spending(store: ObjectStore, channel: str) -> Nights:
    """What the channel's trainings held; empty where nothing is recorded.

    Raises:
        DataError: the record is damaged, or another version of Yanmo wrote it.
    """
    return read_document(store, document_name(channel, SPENDING), SPENDING_SCHEMA, make_spending) or {}


def parse_spending(data: bytes, where: str) -> Nights:
    """The document as it was read from `where`; raises as `read_spending`."""
    return parsed(data, SPENDING_SCHEMA, where, make_spending)


def add_spending(store: ObjectStore, channel: str, night: str, hours: Hours) -> None:
    """Add to a night; raises as `read_spending`, and StorageError."""

    def added(found: Nights | None) -> dict[str, Any]:
        nights = dict(found or {})
        nights[night] = nights.get(night, Hours()) + hours
        newest = sorted(nights)[-_MOST_NIGHTS:]
        return {"nights": {name: {"gpu": nights[name].gpu, "cpu": nights[name].cpu} for name in newest}}

    change_document(store, document_name(channel, SPENDING), SPENDING_SCHEMA, make_spending, added)
