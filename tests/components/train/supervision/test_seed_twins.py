"""Twins: made once for a recipe, kept through kills, and read by promote."""

import dataclasses
import json
import logging
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training_runs import command, model_of, stage

from yanmo.common.errors import DataError, EnvironmentFault, LeaseLost, StorageError, UsageError, WorkerLost
from yanmo.formats.seed_noise import FILE, PART, SeedNoise, Twin
from yanmo.options.command_line import load_given
from yanmo.promote.gate.noise import noise_of
from yanmo.stage.exporter import Telemetry
from yanmo.stage.stage_run import StageRun
from yanmo.store.commit import Attempt, Result, commit_once
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference, read_json
from yanmo.store.pointers import read_pointer
from yanmo.store.runs.lease import Lease
from yanmo.train.config import STAGE, TrainConfig
from yanmo.train.job import WorkerJob
from yanmo.train.schedule import SCHEDULES
from yanmo.train.supervision.seed_twins import TWIN, recipe_of, seed_noise, twin_of

QUICK = {"backend": "torch", "start": "random", "twin_share": 0.5}


def trained(store: Path, options: dict) -> Output:
    done = stage(store, options)
    assert done.returncode == 0, done.stderr
    return model_of(store)


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
    assert changed <= kept | {"twins", "monitor", "profile", "valid_points"}


def test_the_recipe_of_a_twin_knows_no_seed_but_its_own():
    options = TrainConfig(token_cache="t", seed=1, twins=2)

    def keys(options, tokenizer="ab" * 32, goes_on=False):
        return [recipe_of(options, tokenizer, number, goes_on).key for number in range(2)]

    plain = keys(options)
    assert len(set(plain)) == 2
    assert keys(dataclasses.replace(options, seed=2, twins=8, log_every=3)) == plain
    for other in ({"steps": 400}, {"width": 96}, {"twin_share": 0.25}, {"adam_learning_rate": 0.001}):
        assert not set(keys(dataclasses.replace(options, **other))) & set(plain)
    assert not set(keys(options, "cd" * 32)) & set(plain)
    assert not set(keys(dataclasses.replace(options, channel="poems"))) & set(plain), "it has another text"
    assert not set(keys(options, goes_on=True)) & set(plain)


@pytest.fixture(scope="module")
def measured_store(store_template, tiny, tmp_path_factory) -> Path:
    """A store with a model of `tiny` and `QUICK`, trained without twins and then measured by two of them."""
    folder = Path(shutil.copytree(store_template, tmp_path_factory.mktemp("measured") / "store"))
    alone = trained(folder, tiny | QUICK)
    assert PART not in alone.manifest.references and noise_of(alone, None) is None
    # What promote and a damaged part advise.
    done = subprocess.run(command(folder, tiny | QUICK | {"twins": 2}), capture_output=True, text=True)
    assert done.returncode == 0 and "holds no seed noise" in done.stderr and "--force" in done.stderr
    assert model_of(folder).manifest.key == alone.manifest.key, "how many twins there are is in no key"
    measured = trained(folder, tiny | QUICK | {"twins": 2, "force": "true"})
    assert measured.content_digest == alone.content_digest, "the model's own bytes are the same"
    part = open_reference(measured.store, alone.reference).part(PART)
    assert part.reference == measured.part(PART).reference, "and stay where they are"
    return folder


@pytest.fixture
def store(request, store_template, tmp_path) -> Path:
    """A copy of the store to train in: of the measured one where a test asks for it."""
    measured = "measured_store" in request.fixturenames
    source = request.getfixturevalue("measured_store") if measured else store_template
    return Path(shutil.copytree(source, tmp_path / "store"))


@pytest.mark.process
def test_twins_are_made_once_for_a_recipe_and_change_no_model(measured_store, store, tiny):
    tiny = tiny | QUICK
    first = model_of(store)
    made = twins_of(store)
    assert len(made) == 2
    second = trained(store, tiny | {"twins": 2, "seed": 2})
    assert twins_of(store) == made, "the next night makes none again"
    assert first.part(PART).manifest.key == second.part(PART).manifest.key
    noise = SeedNoise.of(second.part(PART))
    assert len({t.bits_per_character for t in noise.twins}) == 2 and noise.share == 0.5
    assert len({t.text for t in noise.twins}) == 1
    read = noise_of(second, first)
    assert (read.twins, read.df, read.is_warm) == (2, 1, False) and 0 < read.sd < 0.1
    warm = trained(store, tiny | {"twins": 2, "seed": 3, "model": f"train/{first.manifest.key}"})
    assert len(twins_of(store)) == 4, "a training that goes on from a model is another recipe"
    assert noise_of(warm, first).is_warm and not noise_of(warm, second).is_warm
    starts = [t.start for name in (first, warm) for t in SeedNoise.of(name.part(PART)).twins]
    assert starts == ["", "", first.content_digest, first.content_digest]
    left = [path for folder in store.glob(f"runs/{TWIN}/*") for path in folder.iterdir() if path.is_dir()]
    assert not left, "of twins that are committed, only lease and inputs stay"


@pytest.mark.process
def test_force_measures_the_noise_of_a_model_that_is_there_and_mends_a_damaged_one(
    measured_store, store, tiny
):
    tiny = tiny | QUICK | {"twins": 2}
    measured = model_of(store)
    kept = {*twins_of(store)}
    for file in (measured.part(PART).path(FILE), *store.glob(f"cas/{TWIN}/*/*/twin.json")):
        file.chmod(0o644)
        file.write_bytes(b" " + file.read_bytes()[1:])  # of equal size
    with pytest.raises(DataError):
        noise_of(model_of(store), None)
    mended = trained(store, tiny | {"force": "true"})
    assert noise_of(mended, None).twins == 2 and {*twins_of(store)} == kept
    for number in (0, 1):
        assert read_json(mended.part(PART).input(f"twin {number:03d}"), "twin.json")["seed"]


@pytest.mark.fault
@pytest.mark.parametrize(("how", "twins"), [(signal.SIGKILL, 2), (signal.SIGTERM, 3)])
def test_a_run_that_is_ended_among_its_twins_loses_none_that_is_finished(how, twins, store, tiny):
    options = tiny | QUICK | {"twins": twins}
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
    assert 1 <= len(before) < twins
    if how == signal.SIGTERM and code == 0:  # asked to stop inside a twin: the model is not kept waiting
        held = model_of(store).manifest.references
        assert (PART in held) == (len(before) > 1)
        options |= {"seed": 1}  # the next night
    model = trained(store, options)
    after = twins_of(store)
    assert len(after) == twins and before.items() <= after.items()
    assert len(SeedNoise.of(model.part(PART)).twins) == twins


def disturbed(store: Path, options: dict, what: Callable[[], bool], seconds: float = 240) -> tuple[int, str]:
    """Train, and do `what` again and again until it is done; exit code and log."""
    process = subprocess.Popen(
        command(store, options), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline and not what(process):
        time.sleep(0.05)
    log = process.communicate(timeout=seconds)[1]
    return process.returncode, log


@pytest.mark.fault
def test_a_twin_that_was_interrupted_begins_again_on_another_text(store, tiny, other_text):
    options = tiny | QUICK | {"twins": 2, "twin_share": 1.0, "steps": 40, "checkpoint_steps": 1}

    def stop_in_a_twin(process) -> bool:
        if not list(store.glob(f"runs/{TWIN}/**/checkpoints/step-*/manifest.json")):
            return False
        os.kill(process.pid, signal.SIGTERM)
        return True

    code, log = disturbed(store, options, stop_in_a_twin)
    assert code == 0 and "stopped in twin 1 of 2" in log, log
    assert not twins_of(store)
    other_text(store)
    done = subprocess.run(command(store, options), capture_output=True, text=True)
    assert done.returncode == 0 and "failed" not in done.stderr, done.stderr
    assert len(twins_of(store)) == 2
    text = read_pointer(open_store(str(store)), "dev", "tokenize").content_digest
    assert {t.text for t in SeedNoise.of(model_of(store).part(PART)).twins} == {text}


@pytest.fixture
def making(store):
    """A run of a model that is trained and not yet committed; making(**options) -> run."""
    leases = []

    def run(**options) -> StageRun:
        flags = [f"--{n.replace('_', '-')}={v}" for n, v in {"device": "cpu", "ranks": 1, **options}.items()]
        values, names = load_given(TrainConfig, [f"--store={store}", *flags], "yanmo train")
        opened = open_store(str(store))
        cache = open_reference(opened, read_pointer(opened, "dev", "tokenize"))
        found = StageRun(
            stage=STAGE,
            options=values,
            store=opened,
            inputs={"token_cache": cache, "model": None},
            telemetry=Telemetry("train", STAGE.metrics),
            given=names,
            key=f"{len(leases):064x}",
        )
        lease = Lease(opened, f"runs/train/{found.key}/LEASE.json", f"a{len(leases)}")
        leases.append(lease)
        assert lease.acquire()
        found.attempt = Attempt(opened, "train", found.key, lease)
        return found

    yield run
    for lease in leases:
        lease.release()


def commit_twin(run: StageRun, number: int, bits: float) -> None:
    """A twin as an earlier night made it."""
    cache = run.input("token_cache")
    tokenizer = cache.part("tokenizer").content_digest
    value = {"seed": number, "text": cache.content_digest, "start": "", "bits_per_character": bits}

    def build(attempt: Attempt) -> Result:
        attempt.write("twin.json", json.dumps(value))
        return Result(counts={"steps": 1})

    assert commit_once(run.store, recipe_of(run.options, tokenizer, number, False), build)


@pytest.mark.parametrize(
    "error",
    [
        EnvironmentFault("no GPU here"),
        WorkerLost("rank 0 of 1 was killed"),
        StorageError("the store is away"),
        RuntimeError("rank 0 failed: a bug"),
        MemoryError(),
        UsageError("training diverged"),
        DataError("damaged"),
        LeaseLost("another run makes this twin"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_keeps_a_twin_from_being_made_costs_neither_the_model_nor_the_other_twins(
    error, making, caplog
):
    run = making(twins=4)
    for number in range(3):
        commit_twin(run, number, 8.0 + 0.01 * number)

    def fails() -> WorkerJob:
        raise error

    logger = logging.getLogger("yanmo.train.supervision.seed_twins")
    logger.addHandler(caplog.handler)
    part = seed_noise(run, fails, lambda task, uploader: True)[PART]
    logger.removeHandler(caplog.handler)
    assert len(SeedNoise.of(part).twins) == 3
    assert "twin 4 of 4 failed" in caplog.text and str(error) in caplog.text


def test_a_run_that_lost_its_model_does_not_go_on_with_twins(making):
    run = making(twins=2)
    run.attempt.lease._lost = True
    with pytest.raises(LeaseLost):
        seed_noise(run, lambda: pytest.fail("no twin is begun"), lambda task, uploader: True)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["", "A", "B"]), st.floats(1.0, 9.0)),
        min_size=1,
        max_size=12,
    ),
    st.dictionaries(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "A", "B"])), st.floats(0.5, 2.0)),
)
def test_what_text_and_start_are_worth_is_no_noise_of_the_seed(twins, worth):
    """Bits of all twins of one text and start may be any times as many: the spread is the same."""

    def spread(factor):
        made = (
            Twin(seed=n, text=text, start=start, bits_per_character=bits * factor.get((text, start), 1.0))
            for n, (text, start, bits) in enumerate(twins)
        )
        return SeedNoise(share=0.25, twins=tuple(made)).spread

    plain, other = spread({}), spread(worth)
    groups = {(text, start) for text, start, _ in twins}
    assert plain[1] == other[1] == len(twins) - len(groups)
    assert math.isnan(plain[0]) == math.isnan(other[0]) == (not plain[1])
    assert math.isnan(plain[0]) or plain[0] == pytest.approx(other[0], rel=1e-9, abs=1e-12)


def test_one_twin_is_refused_as_it_measures_nothing():
    with pytest.raises(ValueError, match="--twins 1 measures nothing: expected 0, or 2 and more"):
        TrainConfig(token_cache="t", twins=1)
