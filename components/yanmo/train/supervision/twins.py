"""What the recipe's seed is worth: twins, short trainings with other seeds, made once for a recipe.

`promote` asks of a gain that it is more than luck with a seed, and how much that is differs from recipe to
recipe. Each twin is a part of its own, `seed_twin`, whose key is the recipe without seed and training text:
it outlives a kill, later nights find it however the text grows, and a night that ends early leaves the rest
to the next. The model never waits for another night: with fewer twins the margin is wider.

Cost: twins x share of a training, once. Not taken: whole trainings with other seeds (16 nights); the
difference of tonight's model from last night's, which is also that of their texts.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shutil
from collections.abc import Callable
from typing import Any

from yanmo.common.errors import DataError, EnvironmentFault, UsageError
from yanmo.common.options import by_kind
from yanmo.common.seed_noise import FILE, PART, SeedNoise, Twin
from yanmo.common.stage_run import StageRun
from yanmo.common.store.commit import Attempt, Recipe, Result, commit_once, work_name
from yanmo.common.store.output import Output, read_json
from yanmo.common.store.work_folder import WorkFolder
from yanmo.common.token_cache import TokenCache
from yanmo.train import job
from yanmo.train.checkpoints.keeper import Keeper
from yanmo.train.config import TrainConfig
from yanmo.train.job import Job, read_metrics
from yanmo.train.models.given import with_shape_of

log = logging.getLogger(__name__)
TWIN = "seed_twin"
REVISION = 1
FIRST_SEED = 1_000_003
"""Of the first twin; far from seeds that people give."""
_VALID_CHARACTERS = 100_000
"""Of each genre at least: a validation of few texts scatters by itself."""
_FILE = "twin.json"


def seed_noise(run: StageRun, task: Job, train: Callable[[Job, Keeper], bool]) -> Output | None:
    """The part `seed_noise` of the recipe's twins, those made now and before; None without two of them.

    Args:
        task: the model's own training.
        train: trains a job to its end; False where it was stopped before.
    """
    twins: list[Output] = []
    model = run.inputs["model"]
    recipe = run.options if model is None else with_shape_of(run.options, model)
    cache = TokenCache.open(run.input("token_cache"))
    for number in range(run.options.twins):
        run.attempt.lease.check()
        try:
            twin = _twin(
                run, recipe_of(recipe, cache.vocab_size, number, model is not None), task, number, train
            )
        except (UsageError, DataError, EnvironmentFault) as error:
            log.warning("twin %d failed; the seed's noise is measured without it: %s", number + 1, error)
            continue
        if twin is None:
            log.info("stopped with %d of %d twins; the next run makes the others", number, run.options.twins)
            break
        twins.append(twin)
        run.pin([twin])
    return _together(run, twins) if len(twins) > 1 else None


def twin_of(options: TrainConfig, number: int) -> TrainConfig:
    """The options of twin `number` (0, 1, ...): the whole schedule of the recipe in a share of its steps."""
    share = options.twin_share
    steps = shortened(options.steps, share)
    return dataclasses.replace(
        options,
        seed=FIRST_SEED + number,
        steps=steps,
        warmup_steps=min(round(options.warmup_steps * share), steps - 1),
        restart_steps=shortened(options.restart_steps, share) if options.restart_steps else 0,
        valid_every=shortened(options.valid_every, share) if options.valid_every else 0,
        valid_characters=max(options.valid_characters, _VALID_CHARACTERS),
        twins=0,
        monitor="off",
        profile=0,
    )


def shortened(steps: int, share: float) -> int:
    """This share of so many steps, at least one."""
    return max(1, round(steps * share))


def recipe_of(options: TrainConfig, vocab_size: int, number: int, goes_on: bool) -> Recipe:
    """What a twin is made from: no seed but its own, and no training text.

    Args:
        options: of the model, with the shape of the one that it starts from.
        goes_on: whether it starts from another model.
    """
    semantic = by_kind(twin_of(options, number), "semantic")
    semantic |= {"of_steps": options.steps, "vocab_size": vocab_size, "goes_on": goes_on}
    return Recipe(stage=TWIN, revision=REVISION, semantic=semantic, inputs={}, run_id=options.run_id)


def _twin(
    run: StageRun, recipe: Recipe, task: Job, number: int, train: Callable[[Job, Keeper], bool]
) -> Output | None:
    work = WorkFolder(run.store, work_name(TWIN, recipe.key))
    options = twin_of(task.options, number)

    def build(attempt: Attempt) -> Result:
        log.info(
            "twin %d of %d: %d steps with seed %d",
            number + 1,
            task.options.twins,
            options.steps,
            options.seed,
        )
        work.path.mkdir(parents=True, exist_ok=True)
        keeper = Keeper(work, attempt.lease)
        keeper.restore()
        if not train(dataclasses.replace(task, options=options, folder=work.path), keeper):
            keeper.save()
            return Result(counts={}, status="paused")
        attempt.write(_FILE, json.dumps(_found(run, work, options), ensure_ascii=False, indent=1) + "\n")
        return Result(counts={"steps": options.steps})

    made = commit_once(run.store, recipe, build)
    if made is not None:
        _forget(work)
    return made


def _found(run: StageRun, work: WorkFolder, options: TrainConfig) -> dict[str, Any]:
    """What a finished twin is kept for.

    Raises:
        DataError: its validation gave no figure.
    """
    lines = read_metrics(work.path / job.METRICS)
    valid = [x["valid_bits_per_character"] for x in lines if x.get("valid_bits_per_character")]
    mean = valid[-1].get("mean") if valid else None
    if mean is None or not math.isfinite(mean):
        raise DataError(f"{work.path}: expected bits per character of the validation split, found {mean}")
    text = run.input("token_cache").content_digest
    return {"seed": options.seed, "text": text, "bits_per_character": mean, "genres": valid[-1]}


def _together(run: StageRun, twins: list[Output]) -> Output:
    figures = [read_json(twin, _FILE) for twin in twins]
    fields = ("seed", "text", "bits_per_character")
    noise = SeedNoise(
        share=run.options.twin_share, twins=tuple(Twin(**{n: f[n] for n in fields}) for f in figures)
    )

    def build(attempt: Attempt) -> Result:
        attempt.write(FILE, noise.to_json())
        return Result(counts={"twins": len(twins)})

    inputs = {f"twin {number:03d}": twin for number, twin in enumerate(twins)}
    recipe = Recipe(
        stage=PART,
        revision=REVISION,
        semantic={"share": run.options.twin_share},
        inputs=inputs,
        run_id=run.options.run_id,
    )
    part = commit_once(run.store, recipe, build)
    assert part is not None
    sd, df = noise.spread
    log.info("seed noise: %.3f %% of the bits, by %d twins of %g of the steps", 100 * sd, df + 1, noise.share)
    return part


def _forget(work: WorkFolder) -> None:
    work.forget()
    for name in (job.CHECKPOINTS, job.EXPORT):
        shutil.rmtree(work.path / name, ignore_errors=True)
    for name in (job.METRICS, job.TRACE, job.MICRO_BATCH, "job.json", "workers.log"):
        (work.path / name).unlink(missing_ok=True)
