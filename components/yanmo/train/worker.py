"""One rank of a training: `python -m yanmo.train.worker JOB.json`; RANK and WORLD_SIZE say which one."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from yanmo.common.child_processes import end_with_parent
from yanmo.common.command_end import stacks_on_request
from yanmo.common.freed_memory import keep_freed_memory
from yanmo.common.logs import setup
from yanmo.common.words import plural
from yanmo.train import job
from yanmo.train.backends.accelerator import before_torch, find_device, prepare
from yanmo.train.backends.hardware import check_compiler
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import (
    FIRST_WEIGHTS,
    IMPORTING,
    JOINING,
    OPENING,
    RankFigures,
    Watchdog,
    waits_for_others,
)
from yanmo.train.job import PeerFailed, Place, Status, WorkerJob, failure

log = logging.getLogger("yanmo.train.worker")  # not __name__: it runs as __main__
_LOST = (
    *("Connection closed by peer", "Connection reset", "Broken pipe"),
    *("ncclRemoteError", "remote process exited"),
)
"""What gloo and NCCL say where a rank at the other end is gone."""
MANY_EPOCHS = 4
"""Up to about here a text read again is worth nearly as much as new text (Muennighoff et al., 2023)."""


def main(path: Path) -> int:
    """Train as one rank, send a status to the supervisor, and end the process with 0 or 1."""
    end_with_parent()
    work = WorkerJob.read(path)
    rank = int(os.environ.get("RANK", 0))
    level = work.options.log_level if rank == 0 else "warning"
    setup(level, "train", work.options.log_format, rank)

    def hanging(what: str) -> None:
        failure(rank, TimeoutError(what), waits=waits_for_others(), doing=watchdog.doing).send()

    figures = RankFigures()
    stacks_on_request()
    limits = work.options.hang_seconds, work.place.step_seconds if work.place else 0.0
    watchdog = Watchdog(work.own, rank, limits[0], hanging, figures.write, limits[1])
    watchdog.start()
    try:
        status = train_rank(work, rank, watchdog.beat, figures)
    except BaseException as error:
        status = failure(rank, error, follows=_follows(error), doing=watchdog.doing)
        log.debug("rank %d failed", rank, exc_info=error)
    watchdog.stop()
    status.send()
    # Not sys.exit: gloo's threads may wait for a dead rank for minutes.
    os._exit(0 if status.state != "failed" else 1)


def _follows(error: BaseException) -> bool:
    """Return whether a rank failed only because another one did: it lost the connection, or was told so."""
    text = str(error)
    lost = any(word in text for word in _LOST) or "gloo" in text.lower()
    return isinstance(error, PeerFailed) or (isinstance(error, RuntimeError) and lost)


def train_rank(
    work: WorkerJob,
    rank: int,
    beat: Callable[[str], None] = lambda doing: None,
    figures: RankFigures | None = None,
) -> Status:
    """Train as one rank in this process; the environment says which one (RANK, WORLD_SIZE ...).

    Args:
        beat: called with what is being done, each time that changes.
        figures: where the rank counts what it does.
    """
    options = work.options
    beat(IMPORTING)
    device = _import_torch(options, rank)
    from yanmo.formats.token_cache import TokenCache
    from yanmo.train.backends.engine import collective_timeout
    from yanmo.train.backends.plain import open_engine
    from yanmo.train.backends.process_group import Collectives
    from yanmo.train.checkpoints.resumable import identity_of
    from yanmo.train.loop import Loop
    from yanmo.train.validate import Curve, Validation

    beat(OPENING)
    cache = TokenCache.open(work.open(work.token_cache))
    samples = samples_of(options, cache, is_new=work.model is None)
    beat(FIRST_WEIGHTS)
    decoder = decoder_of(work, cache, samples, rank)
    shape = decoder.config.shape()
    parameters = [
        sum(p.numel() for p in decoder.parameters() if p.requires_grad or not only) for only in (0, 1)
    ]
    attention = prepare(decoder, options, device)
    beat(JOINING)
    if work.place:
        _join_nodes(work.place, options, device, beat)
    engine = open_engine(decoder, options, device)
    if rank == 0:
        _describe(engine, samples, parameters, attention)
    loop = Loop(
        options=options,
        engine=engine,
        samples=samples,
        validation=Validation.choose(cache, options.valid_characters, options.valid_on),
        curve=Curve.of(options, cache),
        folder=work.folder,
        identity=identity_of(options, samples, work.token_cache.content_digest, shape, _frozen_base(work)),
        collectives=Collectives(engine.world_size, engine.device, collective_timeout(options)),
        ends_at=work.ends_at,
        reason=work.reason,
        note=work.note,
        beat=beat,
        figures=figures or RankFigures(),
        far_parts=_far_parts(work),
        stop_file=work.own / job.STOP if _is_first_here() else None,
    )
    _stop_on_sigterm(loop)
    loop.resume()
    state = loop.run()
    if state == "done":
        beat("writing the model")
        _export(work, loop, cache, decoder.config)
    return Status(rank, state, loop.step)


def _frozen_base(work: WorkerJob) -> str:
    """Content digest of the model that an adapter is trained beside; "" where all weights are trained."""
    return work.model.content_digest if work.model and work.options.lora_rank else ""


def _far_parts(work: WorkerJob) -> Any:
    """Return how checkpoints come together where several nodes share no folder; None where they do."""
    from yanmo.store.file_store import FileStore
    from yanmo.store.opening import store_of
    from yanmo.train.checkpoints.far_parts import FarParts

    if work.place is None:
        return None
    store = store_of(work.options, work.store)
    if isinstance(store, FileStore):
        return None
    return FarParts(store, work.place.parts, work.place.node, work.place.ranks, _is_first_here())


def _is_first_here() -> bool:
    """Return whether this rank is the first of its node."""
    return int(os.environ.get("LOCAL_RANK", 0)) == 0


def _join_nodes(place: Place, options: TrainConfig, device: str, beat: Callable[[str], None]) -> None:
    """Join the ranks of the other nodes."""
    from yanmo.train.backends.engine import collective_timeout
    from yanmo.train.backends.process_group import join_nodes

    backend = "nccl" if device == "cuda" else "gloo"
    join_nodes(backend, collective_timeout(options), place, options.rendezvous_seconds, beat)


def _import_torch(options: TrainConfig, rank: int) -> str:
    """Import torch, and DeepSpeed if it is the backend; returns the device to train on."""
    before_torch()
    device = find_device(options.device)
    check_compiler(options, device)
    if options.backend == "deepspeed":
        from yanmo.train.backends.zero import import_deepspeed

        import_deepspeed(device, options.compile)
    import torch

    torch.set_num_threads(options.threads)
    # For dropout; first weights have a generator of their own. torch takes 64 bits.
    torch.manual_seed((options.seed * 1_000_003 + rank) % (1 << 63))
    _limit_memory(device, options.memory_share)
    if device == "cpu":
        keep_freed_memory()
    return device


def samples_of(options: TrainConfig, cache: Any, is_new: bool = True) -> Any:
    """Return the rows of the training split.

    Args:
        is_new: whether a new model is trained: what --frequent-tokens does to a given one was not measured.
    """
    from yanmo.train.data import Samples

    return Samples(
        cache,
        packing=options.packing_plan,
        seed=options.seed,
        tag_share=options.tag_share,
        pad=cache.special.pad,
        noise_share=options.token_noise,
        frequent=options.frequent_tokens if is_new else 0,
        prefetch=options.prefetch_batches,
    )


def decoder_of(work: WorkerJob, cache: Any, samples: Any, rank: int) -> Any:
    """Return the decoder with another model's weights, or with new ones (on rank 0, unless a checkpoint
    follows)."""
    from yanmo.train.models.decoders import new_decoder, starting_model

    if work.model is not None:
        return starting_model(work.open(work.model), work.options, cache)
    resuming = any((work.folder / job.CHECKPOINTS).glob("step-*"))
    return new_decoder(work.options, cache, samples, draw=rank == 0 and not resuming)


def _limit_memory(device: str, share: float) -> None:
    """Let this process take at most this share of its GPU's memory."""
    import torch

    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(share, int(os.environ.get("LOCAL_RANK", 0)))
    elif share < 1:
        log.warning("--memory-share %g has no effect on %s", share, device)


def _stop_on_sigterm(loop: Any) -> None:
    def stop(signum: int, frame: FrameType | None) -> None:
        loop.stop_asked = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides what Ctrl-C means


def _describe(engine: Any, samples: Any, parameters: list[int], attention: str) -> None:
    from yanmo.train.data import cut_chats
    from yanmo.train.row_draws import DRAWN_SHARE

    options, plan = engine.options, samples.plan(0)
    if said := cut_chats(samples.index, plan.context):
        log.warning("%s", said)
    every, trained = parameters
    if trained < every:
        log.info(
            "LoRA of rank %d: %.2f of %.2f M parameters are trained (%.2g %%)",
            options.lora_rank,
            trained / 1e6,
            every / 1e6,
            100 * trained / every,
        )
    log.info(
        "%.2f M parameters, %s, %.2f M tokens in %d rows of %d (%.1f %% full), %d rows a step: %.2f epochs",
        every / 1e6,
        plural(len(samples.index), "document"),
        plan.num_tokens / 1e6,
        len(plan),
        plan.context,
        100 * plan.fill,
        options.batch_rows,
        epochs := options.steps * options.batch_rows / len(plan),
    )
    if frequent := samples.frequent:
        log.info(
            "head: positions whose target is among the %d most frequent tokens (%.1f %% of the text) compute "
            "the logits of these alone, except a share of %g",
            frequent.count,
            100 * frequent.covered,
            DRAWN_SHARE,
        )
    if epochs > MANY_EPOCHS and not int(os.environ.get("RANK", 0)):  # the other ranks would say it too
        log.warning(
            "little text for so many steps: %s read its %s tokens %.1f times. From about %d times on a "
            "model mostly learns its text by heart (arXiv 2305.16264): give more text, or --steps %d "
            "(train_steps on a run's form, and with `yanmo run --set`)",
            plural(options.steps, "step"),
            f"{plan.num_tokens:,}",
            epochs,
            MANY_EPOCHS,
            max(1, int(MANY_EPOCHS * len(plan) / options.batch_rows)),
        )
    log.info(
        "backend=%s ranks=%d threads=%d precision=%s optimizer=%s zero=%d attention=%s",
        engine.backend,
        engine.world_size,
        options.threads,
        options.precision,
        options.optimizer,
        options.zero_stage,
        attention,
    )


def _export(work: WorkerJob, loop: Any, cache: Any, config: Any) -> None:
    """Write the finished model, on rank 0; the folder `export/` appears only when it is complete."""
    from yanmo.formats.round_trip import open_tokenizer
    from yanmo.model.hf_export import TOKENIZER_FILES
    from yanmo.model.weights_check import num_weights
    from yanmo.train.metrics.utilization import device_name
    from yanmo.train.models.decoders import symbols_of, write_finished, write_merged

    weights = loop.engine.full_weights()
    if loop.engine.rank or (work.folder / job.EXPORT).exists():  # killed after the rename: it is whole
        return
    folder = work.folder / ".tmp-export"
    common = (folder, config, weights, symbols_of(cache), [cache.tokenizer.path(n) for n in TOKENIZER_FILES])
    if work.options.lora_rank:
        assert work.model is not None, "the supervisor has refused it"
        names = write_merged(*common, work.options, work.open(work.model))
    else:
        names = write_finished(*common)
    tokenizer = open_tokenizer(cache.tokenizer.path("tokenizer.json"))
    result = {
        "files": names,
        "marks": [tokenizer.id_to_token(one) or "" for one in (cache.bos, cache.eos)],
        "steps": loop.step,
        "tokens": loop.interval.tokens,
        "parameters": num_weights(folder),
        "trained_parameters": sum(value.numel() for value in weights.values()),
        "model_type": config.model_type,
        "seconds": loop.interval.seconds,
        "updates": loop.engine.updates,
        "device": loop.engine.device.type,
        "device_name": device_name(loop.engine.device),
        "ranks": loop.engine.world_size,
    }
    (folder / job.RESULT).write_text(json.dumps(result), encoding="utf-8")
    for path in folder.rglob("*"):  # a power cut after the rename must leave no empty files under its name
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
    folder.replace(work.folder / job.EXPORT)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
