"""Twins: made once for a recipe, kept through kills, and read by promote."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.common.seed_noise import PART, SeedNoise
from yanmo.common.store.objects import open_store
from yanmo.common.store.output import Output, open_reference
from yanmo.common.store.pointers import read_pointer
from yanmo.promote.noise import noise_of
from yanmo.train.config import TrainConfig
from yanmo.train.schedule import SCHEDULES
from yanmo.train.supervision.twins import TWIN, recipe_of, twin_of

QUICK = {"backend": "torch", "start": "random", "twin_share": 0.5}


def command(store: Path, options: dict) -> list[str]:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return [sys.executable, "-m", "yanmo.train", "--store", str(store), *flags]


def trained(store: Path, options: dict) -> Output:
    done = subprocess.run(command(store, options), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return model_of(store)


def model_of(store: Path) -> Output:
    opened = open_store(str(store))
    return open_reference(opened, read_pointer(opened, "dev", "train"))


def twins_of(store: Path) -> dict[str, str]:
    """Key -> attempt of the twins that are committed."""
    return {p.parent.name: p.read_text(encoding="utf-8") for p in store.glob(f"cas/{TWIN}/*/MANIFEST.json")}


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 10_000),
    st.integers(0, 10_000),
    st.floats(0.001, 1),
    st.sampled_from(SCHEDULES),
    st.integers(0, 500),
)
def test_a_twin_is_the_recipe_with_its_schedule_in_fewer_steps(steps, warmup, share, schedule, every):
    whole = {"steps": steps, "warmup_steps": warmup, "schedule": schedule, "valid_every": every, "seed": 5}
    try:
        options = TrainConfig(token_cache="t", twins=4, twin_share=share, **whole)
    except ValueError:
        return  # no recipe
    twins = [twin_of(options, number) for number in range(4)]  # none contradicts itself
    assert {t.steps for t in twins} == {max(1, round(steps * share))}
    assert all(abs(t.warmup_steps - share * warmup) <= 1.5 or t.warmup_steps == t.steps - 1 for t in twins)
    assert len({t.seed for t in twins} | {options.seed}) == 5
    kept = {"seed", "steps", "warmup_steps", "restart_steps", "valid_every", "valid_characters"}
    changed = {n for n, v in dataclasses.asdict(twins[0]).items() if getattr(options, n) != v}
    assert changed <= kept | {"twins", "monitor", "profile"}


def test_the_recipe_of_a_twin_knows_no_seed_but_its_own():
    options = TrainConfig(token_cache="t", seed=1, twins=2)

    def keys(options, vocabulary=400, goes_on=False):
        return [recipe_of(options, vocabulary, number, goes_on).key for number in range(2)]

    plain = keys(options)
    assert len(set(plain)) == 2
    assert keys(dataclasses.replace(options, seed=2, twins=8, log_every=3)) == plain
    for other in ({"steps": 400}, {"width": 96}, {"twin_share": 0.25}, {"adam_learning_rate": 0.001}):
        assert not set(keys(dataclasses.replace(options, **other))) & set(plain)
    assert not set(keys(options, 500)) & set(plain)
    assert not set(keys(options, goes_on=True)) & set(plain)


def test_twins_are_made_once_for_a_recipe_and_change_no_model(store, tiny):
    tiny = tiny | QUICK
    alone = trained(store, tiny)
    assert PART not in alone.manifest.references and noise_of(alone, None) is None
    first = trained(store, tiny | {"twins": 3, "seed": 1})
    made = twins_of(store)
    assert len(made) == 3
    second = trained(store, tiny | {"twins": 3, "seed": 2})
    assert twins_of(store) == made, "the next night makes none again"
    assert first.part(PART).manifest.key == second.part(PART).manifest.key
    noise = SeedNoise.of(second.part(PART))
    assert len({t.bits_per_character for t in noise.twins}) == 3 and noise.share == 0.5
    assert len({t.text for t in noise.twins}) == 1
    read = noise_of(second, first)
    assert (read.twins, read.df, read.is_warm) == (3, 2, False) and 0 < read.sd < 0.1
    again = trained(store, tiny | {"twins": 3})
    assert again.manifest.key == alone.manifest.key, "how many twins there are is in no key"
    warm = trained(store, tiny | {"twins": 2, "seed": 3, "model": f"train/{first.manifest.key}"})
    assert len(twins_of(store)) == 5, "a training that goes on from a model is another recipe"
    assert noise_of(warm, first).is_warm and not noise_of(warm, second).is_warm


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_ended_among_its_twins_loses_none_that_is_finished(how, store, tiny):
    options = tiny | QUICK | {"twins": 6}
    process = subprocess.Popen(command(store, options), stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 240
        while not twins_of(store) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, how)
        code = process.wait(120)
    finally:
        if process.poll() is None:
            process.kill()
    before = twins_of(store)
    assert 1 <= len(before) < 6
    if how == signal.SIGTERM and code == 0:  # asked to stop inside a twin: the model is not kept waiting
        held = model_of(store).manifest.references
        assert (PART in held) == (len(before) > 1)
        options |= {"seed": 1}  # the next night
    model = trained(store, options)
    after = twins_of(store)
    assert len(after) == 6 and before.items() <= after.items()
    assert len(SeedNoise.of(model.part(PART)).twins) == 6
