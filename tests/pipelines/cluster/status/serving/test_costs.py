"""What nights, months and champions cost, and what is left of a budget, on /metrics."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from yanmo.nights.night import Words
from yanmo.nights.record import StageEnd
from yanmo.nights.telling import Run, tell_end
from yanmo.stage.measured import Measured
from yanmo.store.channel.spending import Hours, add_spending, document_name, read_spending
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output
from yanmo.store.pointers import move_pointer
from yanmo.train.config import TrainConfig
from yanmo.train.supervision.budget import Budget
from yanmo_pipelines.cluster.status.serving.costs import Budgets
from yanmo_pipelines.cluster.status.serving.look import Watcher
from yanmo_pipelines.cluster.status.serving.metrics import METRICS
from yanmo_pipelines.cluster.status.serving.options import ServeOptions
from yanmo_pipelines.cluster.status.serving.serve import Status

PRICES = {"gpu_hour_price": 20.0, "cpu_hour_price": 0.5, "currency": "CNY"}
TOTAL = {"seconds": 9e4, "cpu_seconds": 36000.0, "gpu_hours": 10.0, "kwh": None}
SHANGHAI = ZoneInfo("Asia/Shanghai")


def made(store: FileStore, stage: str, files: dict[str, object]) -> Output:
    def build(attempt: Attempt) -> Result:
        for name, content in files.items():
            attempt.write(name, json.dumps(content))
        return Result(counts={})

    output = commit_once(store, Recipe(stage=stage, revision=1, semantic=dict(files), inputs={}), build)
    assert output is not None
    return output


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    """A channel with two nights and a champion."""
    place = FileStore(tmp_path / "store")
    model = made(place, "train", {"weights": 1})
    judged = made(
        place, "promote", {"verdict.json": {"outcome": "promoted"}, "report.json": {"cost": {"total": TOTAL}}}
    )
    record = {"schema": "yanmo.promotion/1", "champion_since": "2026-11-20T03:00:00+00:00", "previous": None}
    record |= {"model": vars(model.reference), "verdict": vars(judged.reference)}
    place.create("pointers/main/history/000001.json", json.dumps(record).encode())
    move_pointer(place, "main", "champion", model.reference)
    for number, seconds in enumerate((3600.0, 7200.0)):
        run = Run(store=place, channel="main", run_id=f"n{number}", date=f"2026-11-2{number}", timezone="UTC")
        cost, prices = {"seconds": seconds, "cpu_seconds": 0.0}, {"gpu_hour": 10.0, "currency": "CNY"}
        words = Words("It failed.", "失败。")
        tell_end(
            run, StageEnd(task="train", state="failed", sentence=words, cost=cost, gpus=1, prices=prices)
        )
    return place


def shown(store: FileStore, now: float | None = None, **options: object) -> dict[str, float]:
    """Samples by name and labels, as a scrape sees them."""
    budgets = Budgets.of(ServeOptions(**options))  # type: ignore[arg-type]
    status, measured = Status({}, 30, budgets), Measured("status", METRICS)
    status.saw(Watcher(store).look(), 0.0)
    status.show(measured)
    found = re.findall(r"^(yanmo_channel_\w+)\{(.*)\} (\S+)$", measured.text(), re.MULTILINE)
    return {
        f"{name}{{{labels}}}": float(value)
        for name, labels, value in found
        if "cost" in name or "budget" in name
    }


def test_a_scrape_has_what_the_night_the_month_and_the_champion_cost(store: FileStore) -> None:
    assert shown(store, **PRICES) == {
        'yanmo_channel_night_cost{channel="main",currency="CNY"}': 20.0,
        'yanmo_channel_month_cost{channel="main",currency="CNY"}': 30.0,
        'yanmo_channel_champion_cost{channel="main",currency="CNY"}': 10 * 20 + 10 * 0.5,
    }


def test_without_prices_no_champion_is_free_and_without_a_budget_none_is_spent(store: FileStore) -> None:
    add_spending(store, "main", "2026-11-20", Hours(gpu=1.0))
    assert not [name for name in shown(store) if "champion" in name or "budget" in name]


def test_a_budget_is_shown_with_what_trainings_held_of_it(store: FileStore) -> None:
    options = {**PRICES, "budget_month": 4000.0, "budget_night": 200.0, "timezone": "Asia/Shanghai"}
    budget = 'yanmo_channel_budget{channel="main",currency="CNY",period="%s"}'
    assert {k: v for k, v in shown(store, **options).items() if "budget" in k} == {
        budget % "night": 200.0,
        budget % "month": 4000.0,
    }, "no training with a budget: nobody knows what was spent"
    tonight = Budget(store, TrainConfig(channel="main", timezone="Asia/Shanghai"))._night(store.clock())
    add_spending(store, "main", tonight, Hours(gpu=3.0, cpu=16.0))
    found = shown(store, **options)
    for period in ("night", "month"):
        assert found[(budget % period).replace("budget{", "budget_spent{")] == 3 * 20 + 16 * 0.5


@pytest.mark.parametrize(
    ("at", "night", "month"),
    [
        ("2026-11-30T21:00", 2.0, 3.0),
        ("2026-12-01T07:00", 2.0, 3.0),  # the morning after the month's last evening
        ("2026-12-01T12:00", 0.0, 4.0),
        ("2026-12-02T03:00", 0.0, 4.0),
        ("2026-12-02T13:00", 4.0, 4.0),
    ],
)
def test_what_is_spent_is_what_a_training_says_of_that_moment(
    store: FileStore, at: str, night: float, month: float
) -> None:
    for evening, hours in (("2026-11-29", 1.0), ("2026-11-30", 2.0), ("2026-12-02", 4.0)):
        add_spending(store, "main", evening, Hours(cpu=hours))
    now = datetime.fromisoformat(at).replace(tzinfo=SHANGHAI).timestamp()
    given = {"budget_night": 100.0, "budget_month": 100.0, "cpu_hour_price": 1.0, "timezone": "Asia/Shanghai"}
    hours = read_spending(store, "main")
    assert Budgets.of(ServeOptions(**given)).spent(hours, now) == {"night": night, "month": month}  # type: ignore[arg-type]
    training = Budget(store, TrainConfig(channel="main", **given))  # type: ignore[arg-type]
    _, why = training.end(hours, now)
    assert f"{max(night, month):.2f} of it were spent before" in why


def test_a_damaged_record_of_spending_is_damaged_and_hides_nothing_else(store: FileStore) -> None:
    store.create(document_name("main", "spending"), b"{torn")
    seen = Watcher(store).look()
    assert seen.damaged == {"pointers/main/records/spending.json"}
    assert seen.channels["main"].hours is None and seen.channels["main"].champion_total == TOTAL | {
        "money": None
    }
