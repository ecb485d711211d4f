"""How much results vary with the seed: twins, short trainings with other seeds, made once per recipe.

`promote` requires a gain to be larger than what another seed could make, which differs from recipe to
recipe. Each twin is a part of its own, `seed_twin`; its key is the recipe of a channel and tokenizer,
without seed and training text. So it survives a kill, later nights find it however the text grows, and a
night that ends early leaves the rest to the next one. An interrupted twin resumes only on the same text
from the same start, and begins again otherwise. The model never waits for another night and is not lost
with a twin: whatever keeps twins from being made is a warning.

Cost: twins x share of a training, once; the first night commits its model when they are done or the hours of
`--night` are over. Alternatives not taken: whole trainings with other seeds (16 nights), and the difference
between tonight's model and last night's, which also reflects their texts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from yanmo.common.errors import DataError, ExitCode, UsageError, advice, exit_code
from yanmo.common.words import plural
from yanmo.formats.seed_noise import FILE, NOISE, PART, SeedNoise, Twin
from yanmo.formats.token_cache import TokenCache
from yanmo.options.fields import by_kind
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.output import Output, Pause, find_output, read_json
from yanmo.store.runs.in_use import work_name
from yanmo.store.runs.work_folder import WorkFolder
from yanmo.train import job
from yanmo.train.checkpoints.uploader import Uploader
from yanmo.train.config import TrainConfig
from yanmo.train.job import WorkerJob, read_metrics
from yanmo.train.models.starting_model import with_shape_of
from yanmo.train.supervision.machine_check import TrainRun

log = logging.getLogger(__name__)
TWIN = "seed_twin"
REVISION = 2
FIRST_SEED = 1_000_003
"""Seed of the first twin, far from the seeds that people give."""
_VALID_CHARACTERS = 100_000
"""Least size of a twin's validation, per genre: the result on a few texts varies too much by itself."""
_FILE = "twin.json"


def seed_noise(
    run: TrainRun, model_task: Callable[[], WorkerJob], train: Callable[[WorkerJob, Uploader], Pause | None]
) -> dict[str, Output]:
    """Return the part `seed_noise` from the recipe's twins, made now and before; none with fewer than two.

    Args:
        model_task: returns the model's own training; called if a twin has to be made.
        train: trains a job to its end; returns False if it was stopped before.

    Raises:
        StorageError: the lease of the model is lost. No other error is raised: the model needs no twins.
    """
    try:
        twins = _twins(run, model_task, train)
        return {PART: _together(run, twins)} if len(twins) > 1 else {}
    except Exception as error:
        _spare_the_model(run, error, "the seed's noise is not measured")
        return {}


def _twins(
    run: TrainRun, model_task: Callable[[], WorkerJob], train: Callable[[WorkerJob, Uploader], Pause | None]
) -> list[Output]:
    """Return all twins, including those that could be made now."""
    twins: list[Output] = []
    model = run.inputs["model"]
    recipe = run.options if model is None else with_shape_of(run.options, model)
    cache = TokenCache.open(run.input("token_cache"))
    for number in range(run.options.twins):
        run.attempt.lease.check()
        what = f"twin {number + 1} of {run.options.twins}"
        wanted = recipe_of(recipe, cache.tokenizer.content_digest, number, model is not None)
        try:
            twin = _twin(run, wanted, model_task, number, train)
        except (UsageError, DataError) as error:  # this twin alone: its seed diverged
            log.warning("%s failed; the seed's noise is measured without it: %s", what, error)
            continue
        except Exception as error:  # of the machine, the store or our code: the others would fail alike
            _spare_the_model(run, error, f"{what} failed; the next run tries again")
            break
        if twin is None:
            log.info("stopped in %s; the next run makes the others", what)
            break
        twins.append(twin)
        run.pin([twin])
    return twins


def _spare_the_model(run: TrainRun, error: Exception, what: str) -> None:
    """Log why twins were not made; raises only where the model's own lease is lost."""
    run.attempt.lease.check()
    is_bug = exit_code(error) == ExitCode.BUG
    log.warning("%s; the model is committed: %s", what, advice(error), exc_info=error if is_bug else None)


def twin_of(options: TrainConfig, number: int) -> TrainConfig:
    """Return the options of twin `number` (0, 1, ...): the recipe's whole schedule in a share of its
    steps."""
    share = options.twin_share
    steps = shortened(options.steps, share)
    return dataclasses.replace(
        options,
        seed=FIRST_SEED + number,
        steps=steps,
        warmup_steps=min(round(options.warmup_steps * share), steps - 1),
        restart_steps=shortened(options.restart_steps, share) if options.restart_steps else 0,
        valid_every=shortened(options.valid_every, share) if options.valid_every else 0,
        valid_points=0,
        valid_characters=max(options.valid_characters, _VALID_CHARACTERS),
        twins=0,
        monitor="off",
        profile=0,
    )


def shortened(steps: int, share: float) -> int:
    """This share of so many steps, at least one."""
    return max(1, round(steps * share))


def recipe_of(options: TrainConfig, tokenizer: str, number: int, goes_on: bool) -> Recipe:
    """Return the recipe of a twin: with its own seed, without the training text.

    A channel's text grows from night to night; two channels have different texts, so each has its own twins.

    Args:
        options: options of the model, with the shape of the model that it starts from.
        tokenizer: content digest of the token cache's tokenizer.
        goes_on: whether it starts from another model.
    """
    semantic = by_kind(twin_of(options, number), "semantic")
    semantic |= {"of_steps": options.steps, "goes_on": goes_on}
    semantic |= {"channel": options.channel, "tokenizer": tokenizer}
    return Recipe(stage=TWIN, revision=REVISION, semantic=semantic, inputs={}, run_id=options.run_id)


def _twin(
    run: TrainRun,
    recipe: Recipe,
    model_task: Callable[[], WorkerJob],
    number: int,
    train: Callable[[WorkerJob, Uploader], Pause | None],
) -> Output | None:
    origin = _origin(run)
    # Specific to this text and start: a checkpoint from others cannot be resumed or would mix them.
    ours = hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:16]
    work = WorkFolder(run.store, f"{work_name(TWIN, recipe.key)}/{ours}")

    def build(attempt: Attempt) -> Result:
        task = model_task()
        options = twin_of(task.options, number)
        log.info(
            "twin %d of %d: %s with seed %d",
            number + 1,
            task.options.twins,
            plural(options.steps, "step"),
            options.seed,
        )
        _forget(work.path.parent, but=ours)
        work.path.mkdir(parents=True, exist_ok=True)
        uploader = Uploader(work, attempt.lease)
        uploader.restore()
        pause = train(dataclasses.replace(task, options=options, folder=work.path), uploader)
        if pause:
            uploader.save()
            return Result(counts={}, pause=pause)
        found = {"seed": options.seed, **origin, **_found(work)}
        attempt.write(_FILE, json.dumps(found, ensure_ascii=False, indent=1) + "\n")
        return Result(counts={"steps": options.steps})

    made = commit_once(run.store, recipe, build, force=run.options.force and _is_damaged(run, recipe))
    if made is not None and work.path.exists():
        work.forget()
        _forget(work.path.parent)
    return made


def _is_damaged(run: TrainRun, recipe: Recipe) -> bool:
    """Return whether a kept twin has to be made again; `--force` alone is no reason."""
    try:
        kept = find_output(run.store, TWIN, recipe.key)
    except DataError:
        return True
    return kept is not None and kept.is_damaged()


def _origin(run: TrainRun) -> dict[str, str]:
    """Return what twins must share so that they differ only by their seed."""
    model = run.inputs["model"]
    return {
        "text": run.input("token_cache").content_digest,
        "start": model.content_digest if model else "",
    }


def _found(work: WorkFolder) -> dict[str, Any]:
    """Return the result of a finished twin.

    Raises:
        DataError: its validation gave no result.
    """
    lines = read_metrics(work.path / job.METRICS)
    valid = [x["valid_bits_per_character"] for x in lines if x.get("valid_bits_per_character")]
    mean = valid[-1].get("mean") if valid else None
    if mean is None or not math.isfinite(mean):
        raise DataError(f"{work.path}: expected bits per character of the validation split, found {mean}")
    return {"bits_per_character": mean, "genres": valid[-1]}


def _together(run: TrainRun, twins: list[Output]) -> Output:
    figures = [read_json(twin, _FILE) for twin in twins]
    fields = ("seed", "text", "start", "bits_per_character")
    noise = SeedNoise(
        share=run.options.twin_share, twins=tuple(Twin(**{n: f[n] for n in fields}) for f in figures)
    )

    def build(attempt: Attempt) -> Result:
        attempt.write(FILE, NOISE.to_json(noise))
        return Result(counts={"twins": len(twins)})

    inputs = {f"twin {number:03d}": twin for number, twin in enumerate(twins)}
    recipe = Recipe(
        stage=PART,
        revision=REVISION,
        semantic={"share": run.options.twin_share},
        inputs=inputs,
        run_id=run.options.run_id,
    )
    part = commit_once(run.store, recipe, build, force=run.options.force)
    assert part is not None
    sd, df = noise.spread
    count, share = len(noise.twins), noise.share
    if df:
        log.info(
            "seed noise: %.3f %% of the bits, by %s of %g of the steps",
            100 * sd,
            plural(count, "twin"),
            share,
        )
    else:
        log.info(
            "seed noise: %s, no two of one text and start; nothing to compare yet", plural(count, "twin")
        )
    return part


def _forget(folder: Path, but: str = "") -> None:
    """Delete the working files of a twin, whatever its text; lease and inputs stay."""
    for path in folder.iterdir() if folder.exists() else ():
        if path.is_dir() and path.name != but:
            shutil.rmtree(path, ignore_errors=True)
