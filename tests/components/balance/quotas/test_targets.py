from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.balance.config import BalanceOptions
from yanmo.balance.quotas.targets import Quota, QuotaPlan, parse_plan, targets
from yanmo.common.errors import UsageError

AVAILABLE = {"诗": 1_800_000, "词": 200_000, "文": 1_100_000, "赋": 200_000}


def units(text: str, available: dict[str, int] = AVAILABLE, **how: int) -> dict[str, int]:
    found = targets(parse_plan(text), available, **{"max_repeats": 4, **how})
    return {name: target.units for name, target in found.items()}


def test_quotas_are_amounts_percentages_or_weights() -> None:
    assert parse_plan("shi=1900000, ci=200%,诗=12.5%,*=0,").quotas == {
        "shi": Quota(1_900_000, "amount"),
        "ci": Quota(200, "percent"),
        "诗": Quota(12.5, "percent"),
        "*": Quota(0, "amount"),
    }
    assert parse_plan("shi=3w,*=0.5w").quotas == {"shi": Quota(3, "weight"), "*": Quota(0.5, "weight")}
    assert parse_plan("") == QuotaPlan({})
    assert parse_plan("size^0.7") == QuotaPlan({}, 0.7)
    assert (Quota(12.5, "percent").units(1000), Quota(7, "amount").units(1000)) == (125, 7)
    assert [str(Quota(v, f)) for v, f in ((200, "percent"), (1234567890, "amount"), (0.5, "weight"))] == [
        "200%",
        "1234567890",
        "0.5w",
    ]


@pytest.mark.parametrize("text", ["shi", "shi=", "=5", "shi=-5", "shi=1.5", "shi=2x", "shi=5%%", "shi=ci=5"])
def test_what_is_no_quota_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected class=amount, .*ci=200%"):
        BalanceOptions(quotas=text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quotas": "ci=5,ci=6"}, "ci is named twice"),
        ({"quotas": "ci=5w,shi=6"}, "weights .* do not mix"),
        ({"quotas": "ci=0w,*=0w"}, "all weights are 0"),
        ({"quotas": "size^1.5"}, r"size\^1.5: expected 0 .* to 1"),
        ({"quotas": "size^0.5,ci=5"}, r"size\^X .* stands alone"),
        ({"by": "genre+"}, r"--by genre\+: expected names"),
        ({"by": "genre+ genre"}, r"--by genre\+ genre: expected names of labels, each once"),
        ({"max_repeats": 0}, "--max-repeats 0: expected a whole number from 1"),
        ({"synonyms": "x.txt"}, "--synonyms needs --augment"),
    ],
)
def test_contradictions_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BalanceOptions(**options)  # type: ignore[arg-type]


def test_alpha_takes_nothing_away_and_raises_the_scarce() -> None:
    assert units("size^1") == AVAILABLE
    found = units("size^0.7")
    assert found["诗"] == AVAILABLE["诗"]
    assert found["词"] == round(1_800_000 * (200 / 1800) ** 0.7) == found["赋"]
    assert set(units("size^0", max_repeats=9).values()) == {1_800_000}


def test_weights_are_shares_and_the_cap_is_seen() -> None:
    found = targets(parse_plan("shi=1w,ci=1w,wen=0w,fu=2w".replace("shi", "诗").replace("ci", "词")
                    .replace("wen", "文").replace("fu", "赋")), AVAILABLE, max_repeats=4)  # fmt: skip
    assert (found["诗"].units, found["文"].units) == (1_800_000, 0)
    assert (found["词"].wanted, found["词"].units) == (1_800_000, 800_000)
    assert found["赋"].quota == "2w" and found["赋"].wanted == 3_600_000


def test_amounts_and_percentages_are_cut_at_the_cap_and_what_was_asked_is_kept() -> None:
    found = targets(parse_plan("词=900000,赋=500%,文=5"), AVAILABLE, max_repeats=4)
    assert (found["词"].wanted, found["词"].units) == (900_000, 800_000)
    assert (found["赋"].wanted, found["赋"].units) == (1_000_000, 800_000)
    assert (found["文"].units, found["诗"].units) == (5, AVAILABLE["诗"])


CLASSES = st.dictionaries(st.sampled_from("甲乙丙丁戊"), st.integers(1, 10**7), min_size=1)


@settings(max_examples=100, deadline=None)
@given(CLASSES, st.floats(0, 1))
def test_a_power_of_the_size_never_drops_a_document(available: dict[str, int], exponent: float) -> None:
    found = units(f"size^{exponent:.6f}", available)
    assert all(found[name] >= available[name] for name in available)
