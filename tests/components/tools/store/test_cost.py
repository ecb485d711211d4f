"""What nights, months and champions cost: each output once, at the prices given."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from ground import RAW, Ground
from old_store import unpack

from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.output import Output
from yanmo.store.pointers import move_pointer
from yanmo.store.runs.run_record import add_to_run

PRICES = ("--gpu-hour-price", "10", "--cpu-hour-price", "0.5", "--kwh-price", "2")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(str(tmp_path / "store"))


def made(
    ground: Ground, stage: str, run: str, *, hours: float, kwh: float = 0.0, gpus: int = 0, **options: str
) -> Output:
    """An output of a run that took so long by the clock, and as long of one core."""
    seconds = hours * 3600
    figures = f"yanmo_{stage}_duration_seconds {seconds}\nyanmo_{stage}_cpu_seconds {seconds}\n"
    figures += f'yanmo_{stage}_energy_joules{{device="gpu"}} {kwh * 3.6e6}\n' if kwh else ""

    def build(attempt: Attempt) -> Result:
        attempt.write("content.txt", f"{stage} {run}")
        attempt.write("metrics.prom", figures, role="record")
        on = {"device": "cuda", "ranks": gpus} if gpus else {}
        return Result(counts={}, metadata=on)

    recipe = Recipe(
        stage=stage, revision=1, semantic={"run": run, **options}, inputs={"sources": RAW}, run_id=run
    )
    output = commit_once(ground.store, recipe, build)
    assert output is not None
    add_to_run(ground.store, "main", run, {stage: output.reference})
    return output


def costs(ground: Ground, *words: str) -> dict[str, object]:
    found = ground.tool("cost", "--json", *PRICES, *words)
    assert found.code == 0
    return dict(json.loads(found.out)["channels"])


def test_gpu_hours_cpu_hours_and_energy_add_up_at_their_prices(ground: Ground) -> None:
    made(ground, "curate", "one", hours=2, kwh=0.5)
    made(ground, "train", "one", hours=3, kwh=4, gpus=8)
    made(ground, "train", "two", hours=1, kwh=1, gpus=1)
    months = costs(ground)["main"]["months"]  # type: ignore[index]
    (month,) = months.values()
    assert (month["outputs"], month["gpu_hours"], month["kwh"]) == (3, 25.0, 5.5)
    assert month["cpu_hours"] == pytest.approx(6.0) and month["seconds"] == pytest.approx(6 * 3600)
    assert month["price"] == pytest.approx(25 * 10 + 6 * 0.5 + 5.5 * 2) and month["is_whole"]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
def test_a_night_is_from_noon_to_noon_of_the_zone(ground: Ground, zone: str) -> None:
    """These two are 26 hours apart, so that their nights always differ."""
    when = datetime.fromisoformat(made(ground, "curate", "one", hours=2).manifest.created_at)
    evening = when.astimezone(ZoneInfo(zone)) - timedelta(hours=12)
    found = costs(ground, "--timezone", zone)["main"]
    assert list(found["nights"]) == [evening.date().isoformat()]  # type: ignore[index]
    assert list(found["months"]) == [f"{evening:%Y-%m}"]  # type: ignore[index]


def test_what_a_later_run_found_costs_nothing_again(ground: Ground) -> None:
    first = made(ground, "train", "one", hours=2, gpus=1)
    before = costs(ground)
    add_to_run(ground.store, "main", "two", {"train": first.reference})
    add_to_run(ground.store, "main", "three", {"train": first.reference})
    assert costs(ground) == before
    add_to_run(ground.store, "dev", "other", {"train": first.reference})
    assert costs(ground) == before, "it was a run of main"
    assert costs(ground, "--channel", "dev") == {}
    assert costs(ground, "--channel", "main") == before


def test_energy_of_a_part_alone_is_shown_as_less_than_all(ground: Ground) -> None:
    made(ground, "curate", "one", hours=1)
    made(ground, "train", "one", hours=1, kwh=3, gpus=1)
    (night,) = costs(ground)["main"]["nights"].values()  # type: ignore[index]
    assert night["kwh"] == 3 and not night["is_whole"]
    shown = ground.tool("cost", *PRICES, "--currency", "CNY").out
    assert "cost CNY" in shown and "17.00+" in shown  # 10 + 2 * 0.5 + 3 * 2


def test_where_no_counter_could_be_read_no_energy_is_claimed(ground: Ground) -> None:
    made(ground, "curate", "one", hours=1)
    (night,) = costs(ground)["main"]["nights"].values()  # type: ignore[index]
    assert night["kwh"] is None and night["is_whole"] and night["price"] == pytest.approx(0.5)


def test_a_champion_costs_all_that_its_record_rests_on(ground: Ground) -> None:
    model = made(ground, "train", "one", hours=2, gpus=1)
    scores = made(ground, "evaluate", "one", hours=1)
    made(ground, "balance", "one", hours=50)
    record = {"schema": "yanmo.promotion/1", "champion_since": "2026-11-20T03:00:00+00:00", "previous": None}
    record |= {"model": vars(model.reference), "evaluation": vars(scores.reference)}
    ground.store.create("pointers/main/history/000001.json", json.dumps(record).encode())
    move_pointer(ground.store, "main", "champion", model.reference)
    (champion,) = costs(ground)["main"]["champions"]  # type: ignore[index]
    assert champion["number"] == 1 and champion["model"] == f"train/{model.manifest.key}"
    assert champion["price"] == pytest.approx(2 * 10 + 3 * 0.5)


def test_another_channel_is_left_out_and_a_wrong_zone_is_named(ground: Ground) -> None:
    made(ground, "train", "one", hours=2, gpus=1)
    assert costs(ground, "--channel", "dev") == {}
    assert "no run of dev is recorded" in ground.tool("cost", "--channel", "dev").out
    assert ground.tool("cost", "--timezone", "Mars/Olympus").code == 64


def test_the_store_of_an_older_version_is_added_up(tmp_path: Path) -> None:
    """What commit 3328ac6 recorded: real figures of real stages, without energy."""
    channels = costs(Ground(str(unpack(tmp_path))))
    first, second = channels["main"]["champions"]  # type: ignore[index]
    assert first["outputs"] >= 5 and second["cpu_hours"] > 0 and second["kwh"] is None
