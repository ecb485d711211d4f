"""What a training's steps and warm-up follow from where they are not given, and the key of both."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.formats.token_cache import TokenCache
from yanmo.options.command_line import load, load_given
from yanmo.options.fields import by_kind
from yanmo.stage.exporter import Telemetry
from yanmo.stage.stage_run import StageRun
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train.backends.hardware import Machine
from yanmo.train.config import STAGE, TrainConfig
from yanmo.train.options.recipe_options import SIZES
from yanmo.train.supervision.automatic import settle, with_length

MANY = 10**9


def settled(flags: list[str], *, rows: int = 100, tokens: int = MANY, goes_on: bool = False) -> TrainConfig:
    options, named = load_given(TrainConfig, flags, "yanmo train")
    return with_length(
        options, named, goes_on=goes_on, tokens_of_the_text=lambda: tokens, rows_of_an_epoch=lambda: rows
    )


@given(
    epochs=st.floats(0.01, 50).map(lambda x: round(x, 3)),
    rows=st.integers(1, 100_000),
    batch=st.integers(1, 512),
    share=st.floats(0.01, 0.5).map(lambda x: round(x, 3)),
)
def test_epochs_and_share_are_the_steps_and_the_warm_up_of_the_same_key(epochs, rows, batch, share) -> None:
    asked = [f"--epochs={epochs}", f"--batch-rows={batch}", "--schedule=constant"]
    found = settled([*asked, f"--warmup-share={share}"], rows=rows)
    steps = max(1, math.ceil(epochs * rows / batch))
    warm = max(1, round(share * steps))
    assert (found.steps, found.warmup_steps) == (steps, warm)
    spelled = [f"--steps={steps}", f"--warmup-steps={warm}", f"--batch-rows={batch}", "--schedule=constant"]
    assert found == load(TrainConfig, spelled, "yanmo train")
    alone = settled(asked, rows=rows)
    assert alone.warmup_steps == min(30, max(1, steps // 15)), "a warm-up that fits, as with --steps"


def test_they_win_over_what_a_size_or_a_preset_says() -> None:
    found = settled(["--preset=fast", "--epochs=2", "--warmup-share=0.1", "--batch-rows=10"], rows=1000)
    assert (found.steps, found.warmup_steps) == (200, 20)


def test_a_training_that_goes_on_has_its_own_steps_and_the_share_of_them() -> None:
    found = settled(["--steps=900", "--continued-steps=50", "--warmup-share=0.2"], goes_on=True)
    assert (found.steps, found.warmup_steps) == (50, 10)
    assert settled(["--epochs=3", "--batch-rows=10"], goes_on=True).steps == 30


def test_without_them_nothing_is_counted() -> None:
    options, named = load_given(TrainConfig, ["--steps=77"], "yanmo train")
    found = with_length(
        options, named, goes_on=False, tokens_of_the_text=pytest.fail, rows_of_an_epoch=pytest.fail
    )
    assert found == options


@given(tokens=st.integers(1, 10_000_000), rows=st.sampled_from([1, 8, 32]), size=st.sampled_from(list(SIZES)))
def test_a_new_model_reads_a_small_text_about_twice(tokens, rows, size) -> None:
    flags = [f"--batch-rows={rows}", f"--size={size}", "--schedule=constant"]
    found = settled(flags, tokens=tokens)
    readings = found.steps * rows * found.context / tokens
    assert (readings <= 2 + rows * found.context / tokens or found.steps == 50) and found.steps >= 50
    most = 750 if size == "tiny" else 450
    assert found.steps == most or readings >= 2, "and no less often"
    named = load(TrainConfig, [*flags, f"--steps={found.steps}"], "yanmo train")
    assert found == named, "the key has the steps, and the warm-up follows them"
    assert settled(flags, tokens=tokens, goes_on=True).steps == most


@pytest.mark.parametrize(
    ("flag", "steps"),
    [("--steps=750", 750), ("--preset=fast", 112), ("--options=train.steps=300", 300), ("--epochs=40", 125)],
)
def test_steps_that_somebody_or_a_preset_names_are_kept_however_small_the_text(flag, steps) -> None:
    assert settled([flag], tokens=64 * 100).steps == steps


def test_epochs_and_readings_are_those_of_the_token_cache(store) -> None:
    options, names = load_given(
        TrainConfig, [f"--store={store}", "--epochs=3", "--batch-rows=4"], "yanmo train"
    )
    opened = open_store(str(store))
    cache = open_reference(opened, read_pointer(opened, "dev", "tokenize"))
    run = StageRun(
        stage=STAGE,
        options=options,
        store=opened,
        inputs={"token_cache": cache, "model": None},
        telemetry=Telemetry("train", STAGE.metrics),
        given=names,
    )
    found = settle(run, lambda: Machine(cpus=2))
    assert found.epochs == 0 and found.steps > 1
    once = load(TrainConfig, ["--epochs=1"], "yanmo train")
    assert "epochs" not in by_kind(once, "semantic", "execution"), "no key depends on how it was said"
    run.options, run.given = load_given(
        TrainConfig, [f"--store={store}", "--epochs=6", "--batch-rows=4"], "yanmo train"
    )
    assert abs(settle(run, lambda: Machine(cpus=2)).steps - 2 * found.steps) <= 1
    run.options, run.given = load_given(
        TrainConfig, [f"--store={store}", "--batch-rows=2", "--context=32"], "yanmo train"
    )
    tokens = sum(len(ids) for ids in TokenCache.open(cache).tokens[:1])
    again = settle(run, lambda: Machine(cpus=2)), settle(run, lambda: Machine(cpus=2))
    assert again[0].steps == again[1].steps == max(50, math.ceil(2 * tokens / 64))
