"""What a channel's last night, its month and its champion cost, as pages of nights and verdicts say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from yanmo.nights.changing import Values, parse_document
from yanmo.nights.lists import SCHEMA, months_in, rows_in
from yanmo.nights.paid import Paid, paid_by, paid_in
from yanmo.nights.prices import Prices


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Money by what it was for; empty where nobody has said prices."""

    night: tuple[Paid, ...] = ()
    """Of the newest night that has a price."""
    month: tuple[Paid, ...] = ()
    """Of the newest month that has nights, by currency."""
    month_name: str = ""
    """YYYY-MM."""


def spent_in(index: Values) -> Spent:
    """What the newest nights cost, from the index of a channel's nights."""
    months = months_in(index)
    newest = max(months, default="")
    night = next((paid for row in rows_in(index) if (paid := paid_by(row))), None)
    month = paid_in(months[newest]) if newest else []
    return Spent(night=(night,) if night else (), month=tuple(month), month_name=newest)


def parse_index(data: bytes, where: str) -> Values:
    """The index as it was read; raises DataError where it is damaged."""
    return parse_document(data, SCHEMA, where)


def champion_paid(total: Mapping[str, float | None] | None, prices: Prices) -> Paid | None:
    """What all that the champion rests on cost, at today's prices; None where that is not known."""
    money = prices.of(total) if total else None
    return None if money is None else Paid(money, prices.currency)
