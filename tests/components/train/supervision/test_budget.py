"""A budget of the night or the month: what is left of it is a time, and trainings pause there."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from yanmo.common.control_group import usable_cpus
from yanmo.common.errors import DataError
from yanmo.store.channel.spending import Hours, add_spending, read_spending
from yanmo.store.file_store import FileStore
from yanmo.tools.store.command import main as store_tool
from yanmo.train.config import TrainConfig
from yanmo.train.supervision.budget import Budget, within

EVENING = datetime(2026, 3, 3, 14, 0, tzinfo=UTC).timestamp()  # 22:00 in Shanghai
PRICES = {"gpu_hour_price": 20.0, "cpu_hour_price": 0.5, "timezone": "Asia/Shanghai"}


def budget(root: Path, **options: object) -> Budget:
    given = {**PRICES, "token_cache": "none", "ranks": 4, "batch_rows": 8, "device": "cuda", **options}
    return Budget(FileStore(root), TrainConfig(**given))  # type: ignore[arg-type]


def test_what_is_left_is_a_time(tmp_path: Path) -> None:
    rate = 4 * 20 + usable_cpus() * 0.5  # an hour
    found, why = budget(tmp_path, budget_night=rate, currency="CNY").end({}, EVENING)
    assert found == pytest.approx(EVENING + 3600) and why.endswith(
        "CNY is spent; nothing of it was spent before"
    )
    spent = {"2026-03-03": Hours(gpu=rate / 20 / 2), "2026-03-02": Hours(gpu=9999.0)}
    found, why = budget(tmp_path, budget_night=rate).end(spent, EVENING)
    assert found == pytest.approx(EVENING + 1800), "other nights do not count for the night"
    month, why = budget(tmp_path, budget_night=rate, budget_month=rate).end(spent, EVENING)
    assert month == EVENING and why.startswith("--budget-month"), "they do for the month"
    earlier = {"2026-02-28": Hours(gpu=9999.0)}
    assert budget(tmp_path, budget_month=rate).end(earlier, EVENING)[0] > EVENING, "another month does not"


def test_a_night_is_one_from_evening_to_morning(tmp_path: Path) -> None:
    spent = {"2026-03-03": Hours(gpu=1.0)}
    for hours, is_same in ((0, True), (9.9, True), (14.1, False), (-10.1, False)):
        found, _ = budget(tmp_path, budget_night=20.0).end(spent, EVENING + hours * 3600)
        assert (found == EVENING + hours * 3600) == is_same, hours


def test_without_a_budget_nothing_is_read_or_written(tmp_path: Path) -> None:
    options = TrainConfig(token_cache="none", **PRICES)  # type: ignore[arg-type]
    with within(FileStore(tmp_path), options) as end:
        assert end == (math.inf, "")
    assert not (tmp_path / "pointers").exists()


def test_a_budget_needs_a_price() -> None:
    with pytest.raises(ValueError, match="--budget-month needs a price"):
        TrainConfig(token_cache="none", budget_month=1.0)


def test_a_damaged_record_is_no_empty_one(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    add_spending(store, "dev", "2026-03-03", Hours(1, 2))
    add_spending(store, "dev", "2026-03-03", Hours(1, 0.5))
    assert read_spending(store, "dev") == {"2026-03-03": Hours(2, 2.5)}
    assert (
        store_tool(["gc", "--store", str(tmp_path)]) == 0
        and store_tool(["verify", "--store", str(tmp_path)]) == 0
    )
    path = tmp_path / "pointers/dev/records/spending.json"
    path.write_bytes(path.read_bytes().replace(b"2.5", b"0.5"))
    with pytest.raises(DataError, match="damaged"):
        read_spending(store, "dev")


@pytest.mark.process
def test_a_training_pauses_where_its_budget_is_spent_and_the_next_one_at_once(
    store: Path, tiny: Mapping[str, int | str]
) -> None:
    """With 0 and in good order, as at the end of its night; a larger budget lets it go on."""

    def train(budget_night: float) -> subprocess.CompletedProcess[str]:
        options = {
            **tiny,
            "steps": 100_000,
            "budget_night": budget_night,
            "cpu_hour_price": 3600 / usable_cpus(),
        }
        words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        command = [
            sys.executable,
            "-m",
            "yanmo.cli",
            "train",
            "--store",
            str(store),
            "--channel",
            "dev",
            *words,
        ]
        done = subprocess.run([*command, "--metrics-port=-1"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    first = train(3.0)  # one a second
    assert "--budget-night 3 is spent; nothing of it was spent before: saved at step" in first.stderr
    hours = sum(each.cpu for each in read_spending(FileStore(store), "dev").values())
    assert hours * 3600 / usable_cpus() > 3.0
    second = train(3.0)
    assert "--budget-night 3 is spent" in second.stderr and "saved at step" not in second.stderr
    third = train(hours * 3600 / usable_cpus() + 20)
    assert "resuming at step" in third.stderr
