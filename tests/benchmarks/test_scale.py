"""What benchmarks/scale.py predicts: its limits, its formulas, and the pages that it writes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from yanmo.common.errors import EnvironmentFault
from yanmo.train.memory.estimate import check, estimate

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import scale_here  # noqa: E402
from scale_cells import COUNTED, VOCABULARY, options_of  # noqa: E402
from scale_machine import ASSUMED, H100, MACHINES, MEASURED, PUBLISHED, SHEET, SOURCES, Machine  # noqa: E402
from scale_measure import Group  # noqa: E402
from scale_model import OURS, PAPER, Sent, collective_seconds, collectives, predict  # noqa: E402
from scale_pages import UNITS, page  # noqa: E402
from scale_plan import SAME, Case, best, pays, shape, ways  # noqa: E402
from scale_published import fit, ratios  # noqa: E402

SEVEN = Case(shape=shape(7e9, 32_768))
FREE = dataclasses.replace(
    H100,
    **dict.fromkeys(("link_bandwidth", "network_bandwidth", "memory_bandwidth"), 1e30),
    **dict.fromkeys(("link_latency", "network_latency", "call_latency"), 0.0),
    **dict.fromkeys(("exchange_latency", "step_overhead", "fetch_overhead"), 0.0),
)
"""A machine on which nothing but products takes time."""


def seconds(ranks: int, machine: Machine, **changes: object) -> float:
    options = dataclasses.replace(SEVEN.options(ranks, machine), **changes)
    return predict(options, SEVEN.vocab_size, machine).seconds


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_without_a_network_to_wait_for_the_time_is_that_of_one_rank_shared_out(stage: int) -> None:
    alone = seconds(1, FREE, batch_rows=512)
    for ranks in (2, 16, 512):
        assert seconds(ranks, FREE, zero_stage=stage, batch_rows=512) == pytest.approx(alone / ranks)
    o = SEVEN.options(16, FREE)
    step = predict(o, SEVEN.vocab_size, FREE)
    assert step.mfu(FREE, 16) == pytest.approx(FREE.compute_share(o.width))


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_slower_network_memory_or_machine_never_makes_a_step_faster(stage: int) -> None:
    for ranks in (2, 8, 64, 512):
        now = seconds(ranks, H100, zero_stage=stage)
        for name in ("network_bandwidth", "link_bandwidth", "memory_bandwidth", "peak_flops"):
            slower = dataclasses.replace(H100, **{name: getattr(H100, name) / 3})
            assert seconds(ranks, slower, zero_stage=stage) >= now, name
        for name in ("network_latency", "link_latency", "call_latency", "exchange_latency"):
            slower = dataclasses.replace(H100, **{name: getattr(H100, name) * 3})
            assert seconds(ranks, slower, zero_stage=stage) >= now, name


def test_more_parameters_take_longer_and_more_of_everything() -> None:
    plans = [
        best(Case(shape=shape(size, 32_768), tokens=1e11), 64, H100) for size in (1e9, 3e9, 1.3e10, 7e10)
    ]
    found = [(p.seconds, p.gpu_hours, p.kwh, p.host_bytes) for p in plans if p]
    assert len(found) == 4 and all(
        a < b for one, other in pairwise(found) for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize(("stage", "times"), [(1, 2), (2, 2), (3, 3)])
@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_the_zero_paper_s_bytes_are_two_or_three_times_the_model(stage: int, times: int, ranks: int) -> None:
    """arXiv 1910.02054, section 7: 2 psi for stages 1 and 2, 3 psi for stage 3, in 16 bits."""
    o = dataclasses.replace(SEVEN.options(ranks, H100), zero_stage=stage, batch_rows=ranks)
    sent = sum(s.on_the_wire(ranks) for s in collectives(o, SEVEN.vocab_size, PAPER))
    assert sent == pytest.approx(2 * times * SEVEN.parameters * (ranks - 1) / ranks)


def test_an_all_reduce_takes_as_long_as_a_reduce_scatter_and_an_all_gather() -> None:
    for ranks in (2, 8, 16, 800):
        whole, *parts = (
            collective_seconds(Sent("", kind, 1e9, 0, False), ranks, H100)
            for kind in ("all-reduce", "reduce-scatter", "all-gather")
        )
        assert whole == pytest.approx(sum(parts))
    assert collective_seconds(Sent("", "all-reduce", 1e9, 9, False), 1, H100) == 0


def test_a_row_of_a_rank_sends_as_often_as_it_goes_forward_only_under_zero_2_and_3() -> None:
    for stage, grows in ((1, False), (2, True), (3, True)):
        once, often = (
            sum(
                s.size
                for s in collectives(
                    dataclasses.replace(SEVEN.options(8, H100), zero_stage=stage, micro_batch=rows),
                    SEVEN.vocab_size,
                    OURS,
                )
            )
            for rows in (64, 1)
        )
        assert (often > 5 * once) == grows


def test_memory_is_the_estimate_of_yanmo_train_and_a_plan_is_what_it_accepts() -> None:
    for ranks in (8, 64):
        plan = best(SEVEN, ranks, H100)
        assert plan and plan.step.memory == estimate(plan.options, SEVEN.vocab_size, "cuda")
        check(plan.options, SEVEN.vocab_size, "cuda")
    large = Case(shape=shape(7e10, 32_768))
    assert best(large, 8, H100) is None
    for stage in (1, 2, 3):
        asked = dataclasses.replace(large.options(8, H100), zero_stage=stage, gradient_checkpointing=True)
        with pytest.raises(EnvironmentFault):
            check(asked, large.vocab_size, "cuda")


def test_the_plan_is_the_simplest_of_the_fastest_that_fit() -> None:
    for ranks in (8, 64, 512):
        plan = best(SEVEN, ranks, H100)
        assert plan
        found = [(o, predict(o, SEVEN.vocab_size, H100).seconds) for o in ways(SEVEN, ranks, H100)]
        assert plan.step.seconds <= SAME * min(taken for _, taken in found)
        simpler = [taken for o, taken in found if o.zero_stage < plan.options.zero_stage]
        assert all(taken > plan.step.seconds for taken in simpler)
    assert best(SEVEN, 2 * SEVEN.rows, H100) is None, "more GPUs than rows"


def test_what_an_added_gpu_gives_is_1_where_nothing_is_waited_for() -> None:
    plans = [best(SEVEN, n, FREE, (3,)) for n in (64, 128, 256)]
    first, *rest = pays(plans)
    assert first is None and rest == pytest.approx([1.0, 1.0])
    slow = dataclasses.replace(H100, network_bandwidth=1e9)
    assert (pays([best(SEVEN, n, slow) for n in (8, 16)])[1] or 0) < 0.2


@pytest.mark.parametrize("size", [1e8, 3.4e8, 1e9, 3e9, 7e9, 1.3e10, 3e10, 7e10])
def test_a_shape_has_about_the_parameters_that_were_asked_for(size: int) -> None:
    case = Case(shape=shape(size, 32_768))
    assert case.parameters == pytest.approx(size, rel=0.06)
    assert case.options(8, H100).num_parameters(32_768) == case.parameters


def test_the_shares_of_the_machines_are_those_that_the_fitted_rows_give() -> None:
    for name, (full, half) in fit().items():
        assert MACHINES[name].full_share == pytest.approx(full, abs=1e-3)
        assert MACHINES[name].half_width == pytest.approx(half, abs=1)


def test_published_benchmarks_that_were_not_fitted_are_met() -> None:
    """18 rows from 125 million to 70 billion parameters on 8 to 128 GPUs."""
    held = [ratio for run, ratio in ratios() if not run.is_fitted and not run.is_whole]
    assert len(held) >= 18 and min(held) > 0.85 and max(held) < 1.35
    assert sorted(held)[len(held) // 2] == pytest.approx(1, abs=0.08)


def test_every_constant_says_where_it_comes_from() -> None:
    fields = {f.name for f in dataclasses.fields(Machine)}
    of_a_cpu = {"name", "device", "ranks_per_node", "kept_bandwidth", "cores", "crowding"}
    assert SOURCES.keys() == UNITS.keys() == fields - of_a_cpu
    assert {kind for kind, _ in SOURCES.values()} <= {MEASURED, SHEET, PUBLISHED, ASSUMED}


@pytest.mark.parametrize(("name", "language"), [("scale.md", "en"), ("scale.zh.md", "zh")])
def test_the_page_is_the_one_that_its_command_writes(name: str, language: str) -> None:
    said = "run python benchmarks/scale.py --docs"
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(language), said


def test_what_was_measured_is_fitted_by_few_and_met_by_the_others() -> None:
    found = scale_here.read()
    assert found
    steps = scale_here.compare_steps(found)
    held = sorted(abs(one.error) for one in steps if not one.is_fitted)
    assert len(held) >= 5 * sum(one.is_fitted for one in steps) and held[len(held) // 2] < 0.25


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_two_ranks_sent_what_the_model_says(stage: int) -> None:
    found = scale_here.read()
    assert found
    assert counted_bytes(found["counted"][f"ZeRO-{stage}"]["sent"]) == pytest.approx(
        model_bytes(stage), rel=0.03
    )


def counted_bytes(sent: dict[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, size in sent.items():
        kind = name.split()[0]
        found[kind] = found.get(kind, 0) + size
    return {kind: size for kind, size in found.items() if size > 1000}  # else it is a norm or a flag


def model_bytes(stage: int) -> dict[str, float]:
    o = options_of(COUNTED[f"ZeRO-{stage}"], 2)
    return {s.kind: s.size for s in collectives(o, VOCABULARY, OURS)}


@pytest.mark.process
def test_deepspeed_still_sends_what_the_model_says() -> None:
    group = Group(2)  # with an engine for each stage, as processes of their own would import DeepSpeed again
    try:
        for stage in (1, 2, 3):
            # Gradients and weights are sent, so rows may be short: in bf16 a CPU takes long over them.
            found = group.ask(do="count", cell={**COUNTED[f"ZeRO-{stage}"], "context": 8})[0]
            assert counted_bytes(found["sent"]) == pytest.approx(model_bytes(stage), rel=0.03)
    finally:
        group.end()


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_prints_a_row_for_each_number_of_gpus() -> None:
    done = run("--parameters=7e9", "--gpus=64,8", "--network=12.5", "--gpu-hour-price=2", "--currency=CNY")
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert done.returncode == 0, done.stderr
    assert [row.split(" | ")[0] for row in rows] == ["| GPUs", "| 8", "| 64"]
    assert all(row.endswith(" CNY |") for row in rows[1:]) and "12.5 GB/s between nodes" in done.stdout


@pytest.mark.process(few=1)
@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ([], 64, "give --parameters"),
        (["--parameters=-7"], 2, "above 0"),
        (["--parameters=7e9", "--gpus=0"], 2, "from 1 to 10,000"),
        (["--parameters=7e9", "--gpus=10001"], 2, "from 1 to 10,000"),
        (["--parameters=7e9", "--gpu=abacus"], 2, "abacus"),
        (["--parameters=7e9", "--gpu-hour-price=much"], 64, "--gpu-hour-price"),
        (["--parameters=7e9", "--stages=4"], 2, "1, 2, 3"),
    ],
)
def test_a_wrong_option_is_refused_with_what_would_be_right(flags: list[str], code: int, said: str) -> None:
    done = run(*flags)
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr
