"""`make bench`: turns, ratios and their intervals, the peers' environments, the pages."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import venv
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from bench import environments
from bench.declared import NAMES, Group, benchmark
from bench.intervals import order_interval, ratio
from bench.rounds import in_turn, measured

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("count", "left_out", "coverage"),
    [(1, 0, 0.0), (5, 0, 0.9375), (6, 0, 0.96875), (8, 0, 0.9921875), (9, 1, 0.9609375), (20, 5, 0.9586)],
)
def test_the_interval_of_a_median_is_that_of_the_sign_test(count, left_out, coverage) -> None:
    assert order_interval(count) == (left_out, pytest.approx(coverage, abs=1e-4))


def test_the_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    draw, held = random.Random(3), 0
    for _ in range(2000):
        ours = [draw.lognormvariate(1, 0.3) for _ in range(9)]
        theirs = [x / (2 * draw.lognormvariate(0, 0.2)) for x in ours]
        found = ratio(ours, theirs, more_is_better=True)
        held += found.low <= 2 <= found.high
    assert 0.945 < held / 2000 < 0.975


def test_a_ratio_says_how_many_times_as_good_ours_is() -> None:
    assert ratio([4.0, 6.0, 8.0], [2.0, 2.0, 2.0], more_is_better=True).median == 3.0
    assert ratio([4.0, 6.0, 8.0], [2.0, 2.0, 2.0], more_is_better=False).median == pytest.approx(1 / 3)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_all_take_part_in_each_round_and_none_is_always_first(count: int) -> None:
    names = [str(i) for i in range(count)]
    orders = [in_turn(names, number) for number in range(2 * count)]
    assert all(sorted(order) == names for order in orders)
    assert set(Counter(order[0] for order in orders).values()) == {2}


def test_a_warm_up_is_not_counted() -> None:
    calls: list[str] = []

    def work(name: str) -> float:
        calls.append(name)
        return float(calls.count(name))

    group = Group(("x", "x"), {name: lambda name=name: work(name) for name in ("yanmo", "other")})  # type: ignore[misc]
    found = measured(group, 3)
    assert found["figures"] == {"yanmo": [2.0, 3.0, 4.0], "other": [2.0, 3.0, 4.0]}
    assert calls == [*["yanmo", "other"] * 2, "other", "yanmo", "other", "yanmo"]


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_listed_without_its_packages_and_pins_them(name: str) -> None:
    one = benchmark(name)
    assert one.name == name and one.rounds >= 6, "fewer rounds have no interval of 95 %"
    assert one.is_apart or all(re.fullmatch(r"[\w-]+==[\d.]+", package) for package in one.packages)


def test_the_peers_environment_sees_yanmo_and_its_own_packages_first(tmp_path: Path) -> None:
    venv.create(tmp_path / "peer", with_pip=False)
    python = tmp_path / "peer/bin/python"
    environments._see_ours(python)
    (next((tmp_path / "peer/lib").iterdir()) / "site-packages/orjson.py").write_text("peer = True\n")
    program = "import yanmo.common.errors, numpy, orjson; print(orjson.peer)"
    done = subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr


def test_a_wrong_name_or_a_store_without_a_model_is_refused_before_anything_is_measured(tmp_path) -> None:
    for options, said in (
        (["--only", "tokens,nix"], "there is no benchmark nix; there are tokens,"),
        (["--only", "tokens,generation", "--store", str(tmp_path)], "run `make demo` first"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "bench", *options],
            cwd=BENCHMARKS,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2 and said in done.stderr
    assert not (BENCHMARKS.parent / ".bench/nix").exists()
