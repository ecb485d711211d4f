"""What nights cost in money: at the prices that were said, added up by month, honest about the unknown."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from conftest import VERDICT, end_of, failure, run_of, text_of

from yanmo.nights.line import night_line
from yanmo.nights.lists import read_index, read_month, rows_in
from yanmo.nights.night import Row
from yanmo.nights.paid import Paid, paid_for
from yanmo.nights.prices import Prices
from yanmo.nights.publishing import rows_shown
from yanmo.nights.record import read_record, row_of
from yanmo.nights.settings import prices_of
from yanmo.nights.telling import tell_begin, tell_end, tell_verdict
from yanmo.store.objects import ObjectStore

PRICES = {"gpu_hour": 20.0, "cpu_hour": 0.5, "kwh": 2.0, "currency": "CNY"}
HOUR = {"seconds": 3600.0, "cpu_seconds": 7200.0}


def row(store: ObjectStore) -> Row:
    return rows_shown(store, "nightly")[0]


def test_a_night_costs_its_gpus_cores_and_energy_at_the_prices_said(store: ObjectStore) -> None:
    end = end_of(cost={**HOUR, "kwh": 3.0}, gpus=8, prices=PRICES)
    tell_end(run_of(store), end)
    assert row(store).cost["gpu_hours"] == 8.0
    assert row(store).cost["money"] == pytest.approx(8 * 20 + 2 * 0.5 + 3 * 2)
    assert (row(store).currency, row(store).is_more) == ("CNY", False)
    page = text_of(store, "nights/nightly/2026-11-23-run-1.html")
    assert "<b>167.00 CNY</b>" in page and "<b>167.00 CNY</b>" in text_of(store, "nights/nightly/index.html")
    assert "167.00 CNY" in text_of(store, "nights/nightly/feed.xml")
    assert night_line("nightly", row(store), "zh", "").endswith("167.00 CNY）")


def test_the_stage_that_knows_a_price_prices_all_of_the_night(store: ObjectStore) -> None:
    run = run_of(store)
    tell_end(run, end_of("curate", cost=HOUR))
    assert "money" not in row(store).cost
    tell_end(run, end_of("train", cost=HOUR, gpus=1, prices={"gpu_hour": 20.0, "currency": "CNY"}))
    tell_end(run, end_of("evaluate", cost=HOUR, prices={"cpu_hour": 0.5}))
    assert row(store).cost["money"] == pytest.approx(20 + 6 * 0.5)


def test_gpus_held_by_a_training_that_paused_are_paid_for_in_its_own_night(store: ObjectStore) -> None:
    for night, state in ((22, "paused"), (23, "done")):
        run = run_of(store, f"run-{night}", date=f"2026-11-{night}")
        tell_begin(run, end_of("train", "working", gpus=4, prices=PRICES, cost={}))
        tell_end(run, end_of("train", state, cost={"seconds": 7200.0, "cpu_seconds": 0.0}))
        tell_verdict(run, VERDICT)
    assert [each.cost["money"] for each in rows_shown(store, "nightly")] == [160.0, 160.0]
    month = rows_in(read_month(store, "nightly", "2026-11"))
    assert paid_for(month) == [Paid(320.0, "CNY")]
    assert "<b>320.00 CNY</b>" in text_of(store, "nights/nightly/2026-11.html")
    assert "<b>320.00 CNY</b>" in text_of(store, "nights/nightly/index.html")


def test_a_process_that_never_said_what_it_used_leaves_a_plus(store: ObjectStore) -> None:
    run = run_of(store)
    tell_begin(run, end_of("train", "working", prices=PRICES, cost={}, process="one"))
    tell_begin(run, end_of("train", "working", prices=PRICES, cost={}, process="one"))
    tell_end(run, end_of("train", cost=HOUR, process="one"))
    assert not row(store).is_more, "another try of the same process, which counts all of its time"
    tell_begin(run, end_of("evaluate", "working", cost={}, process="two"))
    tell_begin(run, end_of("evaluate", "working", cost={}, process="three"))
    tell_end(run, end_of("evaluate", cost=HOUR, process="three"))
    assert row(store).is_more and "2.00+ CNY" in text_of(store, "nights/nightly/index.html")
    assert "2.00+ CNY" in night_line("nightly", row(store), "en", "")
    tell_end(run_of(store, "run-2"), end_of(cost=HOUR, prices=PRICES))
    assert paid_for(rows_shown(store, "nightly")) == [Paid(3.0, "CNY", True)]


def test_currencies_are_not_added_up(store: ObjectStore) -> None:
    for number, currency in enumerate(("CNY", "EUR", "CNY", "")):
        prices = {"cpu_hour": 1.0, "currency": currency} if currency else {}
        tell_end(run_of(store, f"run-{number}"), end_of(cost=HOUR, prices=prices))
    assert paid_for(rows_shown(store, "nightly")) == [Paid(4.0, "CNY"), Paid(2.0, "EUR")]
    assert "<b>4.00 CNY, 2.00 EUR</b>" in text_of(store, "nights/nightly/index.html")


def test_all_that_a_model_rests_on_is_beside_what_the_night_cost(store: ObjectStore) -> None:
    run = run_of(store)
    tell_end(run, end_of(cost=HOUR, gpus=1, prices=PRICES))
    total = {"seconds": 9e4, "cpu_seconds": 36000.0, "gpu_hours": 10.0, "kwh": None}
    tell_verdict(run, {**VERDICT, "total": total})
    assert row(store).whole == pytest.approx(10 * 20 + 10 * 0.5)
    assert "(all of its model: 205.00)" in text_of(store, "nights/nightly/index.html")
    tell_verdict(run, {**VERDICT, "total": {**total, "gpu_hours": None}})
    assert row(store).whole is None, "not as if it had been no hour"


def test_without_prices_nothing_is_claimed_and_nothing_free(store: ObjectStore) -> None:
    tell_end(run_of(store), end_of(cost=HOUR, gpus=1))
    tell_end(run_of(store, "run-2"), failure())
    assert all("money" not in each.cost for each in rows_shown(store, "nightly"))
    assert "paid" not in read_index(store, "nightly")["months"]["2026-11"]  # type: ignore[index]
    assert Prices.read(PRICES).of({}) is None


@pytest.mark.parametrize(
    "damaged", ["x", [], {"gpu_hour": "dear"}, {"gpu_hour": -1, "currency": "a\x00" * 99}]
)
def test_damaged_prices_hide_no_night(store: ObjectStore, damaged: object) -> None:
    tell_end(run_of(store), end_of(cost=HOUR, prices=PRICES))
    record = read_record(store, "nightly", "run-1")
    assert record is not None
    shown = row_of({**record, "prices": damaged})
    assert "money" not in shown.cost and len(shown.currency) <= 8
    assert Row.of({**shown.to_dict(), "whole": "x", "is_more": "yes"}).is_more is False


def test_prices_come_from_options_the_environment_or_the_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not prices_of().is_known
    (tmp_path / "gpu_hour_price").write_text("20\n")
    (tmp_path / "currency").write_text("CNY\n")
    monkeypatch.setenv("YANMO_S3_SECRET_DIR", str(tmp_path))
    monkeypatch.setenv("YANMO_CPU_HOUR_PRICE", "0.3")
    assert prices_of() == Prices(gpu_hour=20, cpu_hour=0.3, currency="CNY")

    class Given:
        gpu_hour_price, currency = 35.0, "EUR"

    assert prices_of(Given) == Prices(gpu_hour=35, cpu_hour=0.3, currency="EUR")
    for wrong in ("dear", "-3", "nan", "inf"):
        monkeypatch.setenv("YANMO_KWH_PRICE", wrong)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert prices_of().kwh == 0
        assert "YANMO_KWH_PRICE is not used: expected a price, a number from 0" in caplog.text


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0.0, "0.00"), (0.00001, "below 0.0001"), (0.0023, "0.0023"), (0.01, "0.01"), (1234.567, "1234.57")],
)
def test_a_small_amount_is_not_shown_as_nothing(amount: float, shown: str) -> None:
    assert str(Paid(amount, "CNY")) == f"{shown} CNY"
