"""Money that nights cost, as it is shown and added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from yanmo.nights.night import Row, finite, plain
from yanmo.nights.prices import MOST_OF_A_CURRENCY

_CENT, _LEAST_SHOWN = 0.01, 0.0001


def shown_amount(amount: float) -> str:
    """Two decimals; four below a hundredth, so that a short night on a laptop is not shown as free."""
    if not 0 < amount < _CENT:
        return f"{amount:.2f}"
    return f"{amount:.4f}" if amount >= _LEAST_SHOWN else f"below {_LEAST_SHOWN}"


@dataclass(frozen=True)
class Paid:
    """An amount in one currency."""

    amount: float
    currency: str = ""
    is_more: bool = False
    """Whether more was used than was said: a `+` stands behind it."""

    def __str__(self) -> str:
        return f"{shown_amount(self.amount)}{'+' if self.is_more else ''} {self.currency}".strip()

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def read(cls, values: Any) -> Paid | None:
        """From what JSON holds; None where that is no amount."""
        amount = finite(values.get("amount")) if isinstance(values, Mapping) else None
        if amount is None:
            return None
        currency = plain(str(values.get("currency", "")), MOST_OF_A_CURRENCY)
        return cls(amount, currency, values.get("is_more") is True)


def paid_by(row: Row) -> Paid | None:
    """What a night cost; None where that is not known."""
    money = row.cost.get("money")
    return None if money is None else Paid(money, row.currency, row.is_more)


def paid_for(rows: Iterable[Row]) -> list[Paid]:
    """What nights cost together, by currency; nights without a price are not in it."""
    found: dict[str, Paid] = {}
    for one in filter(None, map(paid_by, rows)):
        before = found.get(one.currency, Paid(0.0))
        is_more = before.is_more or one.is_more
        found[one.currency] = Paid(before.amount + one.amount, one.currency, is_more)
    return [found[currency] for currency in sorted(found)]


def paid_in(counts: Mapping[str, Any]) -> list[Paid]:
    """What a month cost, as the index counted it."""
    said = counts.get("paid", ())
    return [paid for each in said if (paid := Paid.read(each))] if isinstance(said, list) else []
