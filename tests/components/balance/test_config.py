from __future__ import annotations

import pytest

from yanmo.balance.config import BalanceOptions, Quota, parse_quotas
from yanmo.common.errors import UsageError


def test_quotas_are_characters_or_percent() -> None:
    assert parse_quotas("shi=1900000, ci=200%,诗=12.5%,*=0,") == {
        "shi": Quota(1_900_000, False),
        "ci": Quota(200, True),
        "诗": Quota(12.5, True),
        "*": Quota(0, False),
    }
    assert parse_quotas("") == {}
    assert Quota(12.5, True).characters(1000) == 125
    assert Quota(1_900_000, False).characters(7) == 1_900_000
    assert (str(Quota(200, True)), str(Quota(5, False))) == ("200%", "5")


@pytest.mark.parametrize("text", ["shi", "shi=", "=5", "shi=-5", "shi=1.5", "shi=2x", "shi=5%%", "shi=ci=5"])
def test_what_is_no_quota_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected genre=characters or genre=percent%.*ci=200%"):
        BalanceOptions(quotas=text)


def test_a_genre_has_one_quota() -> None:
    with pytest.raises(UsageError, match="ci is named twice"):
        BalanceOptions(quotas="ci=5,ci=6")


def test_counts_are_positive() -> None:
    with pytest.raises(UsageError, match="--max-repeats is 0: expected at least 1"):
        BalanceOptions(max_repeats=0)
