"""The collapse monitor on trainings of this process: figures, warnings, and nothing when it is off."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from yanmo.train.health.monitor import Monitor

pytestmark = pytest.mark.usefixtures("one_rank")


@pytest.fixture
def train(train, lines_in):
    """Run a training in this process: train(folder, **options) -> the lines of its metrics."""

    def run(folder: str, **options) -> list[dict]:
        train(folder, start="random", **options)
        return lines_in(folder)

    return run


def looks(lines: list[dict]) -> list[dict]:
    return [line["monitor"] for line in lines if "monitor" in line]


@pytest.mark.parametrize("stage", [{"zero_stage": 1}, {"zero_stage": 3}, {"backend": "torch"}], ids=str)
def test_layers_add_up_to_the_whole_gradient_and_watching_changes_no_loss(stage, train):
    plain = train("off", monitor="off", **stage)
    watched = train("full", monitor="full", monitor_every=4, clip=0.0, **stage)
    assert not looks(plain) and len(looks(watched)) == 2
    for line, look in zip(
        [x for x in watched if x.get("step") in (4, 8) and "loss" in x], looks(watched), strict=True
    ):
        assert set(look["grad_norm"]) == {"0", "1", "embedding", "head", "norm"}
        whole = sum(v**2 for v in look["grad_norm"].values()) ** 0.5
        assert whole == pytest.approx(line["grad_norm"], rel=1e-2)
        assert all(0 < ratio < 1 for ratio in look["update_ratio"].values())
        assert set(look["effective_rank"]) == {"0", "1"}
    unclipped = train("again", monitor="off", clip=0.0, **stage)
    assert [x["loss"] for x in unclipped if "loss" in x] == [x["loss"] for x in watched if "loss" in x]


def test_a_learning_rate_that_tears_the_weights_apart_is_warned_of_once(train, caplog):
    train("a", monitor="fast", monitor_every=1, muon_learning_rate=3.0, spike_nats=0.0)
    warnings = [r.message for r in caplog.records if "update_ratio" in r.message]
    assert any("lower the learning rate" in text for text in warnings)
    assert len(warnings) == len({text.split(",")[1].split("=")[0] for text in warnings})


def test_a_healthy_training_is_not_warned_of(train, caplog):
    train("a", monitor="full", monitor_every=1, steps=20)
    assert not [r.message for r in caplog.records if "monitor" in r.name]


@pytest.fixture
def warned(caplog):
    """What a monitor says of the figures of a step: warned(monitor, step, **figures) -> warnings."""

    def say(monitor: Monitor, step: int, **figures) -> list[str]:
        caplog.clear()
        monitor._step_metrics = lambda: {"grad_norm": {"0": 1.0}, **figures}
        monitor.end(step, None)
        return [r.getMessage() for r in caplog.records]

    return say


def monitor_of(*, warmup_steps: int = 0) -> Monitor:
    engine = SimpleNamespace(rank=0, decoder=torch.nn.Linear(1, 1), observer=None)
    return Monitor(engine, None, "fast", 1, warmup_steps)


@pytest.mark.parametrize(
    ("figure", "good", "bad"),
    [
        ("active_units", 0.5, 0.499),
        ("effective_rank", 3.0, 2.99),
        ("attention_entropy", 0.05, 0.0499),
        ("output_entropy", 0.01, 0.0099),
        ("update_ratio", 0.5, 0.501),
    ],
)
def test_a_metric_is_bad_just_beyond_its_threshold_and_warned_of_again_after_it_was_good(
    figure, good, bad, warned
):
    monitor = monitor_of()
    assert not warned(monitor, 1, **{figure: {"1": good}})
    assert [text.split(":")[0] for text in warned(monitor, 2, **{figure: {"1": bad}})] == ["step 2, layer 1"]
    assert not warned(monitor, 3, **{figure: {"1": bad}}), "once"
    assert not warned(monitor, 4, **{figure: {"1": good}})
    assert len(warned(monitor, 5, **{figure: {"1": bad}})) == 1


def test_a_layer_without_a_millionth_of_the_largest_gradient_has_lost_it(warned):
    monitor = monitor_of()
    assert not warned(monitor, 1, grad_norm={"0": 2.0, "1": 2.0e-6})
    (text,) = warned(monitor, 2, grad_norm={"0": 2.0, "1": 1.9e-6})
    assert "layer 1" in text and "vanished" in text
    assert not warned(monitor, 3, grad_norm={"0": 0.0, "1": 0.0}), "nothing to compare with"


def test_nothing_is_logged_until_the_warmup_is_over(warned):
    monitor = monitor_of(warmup_steps=5)
    assert not warned(monitor, 5, update_ratio={"0": 0.9})
    assert len(warned(monitor, 6, update_ratio={"0": 0.9})) == 1
