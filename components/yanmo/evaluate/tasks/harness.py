"""Public benchmarks: tasks of lm-evaluation-harness, from a local folder, through its own API.

The harness is an extra of its own (`pip install '.[harness]'`), as it brings forty packages. It is given
our decoder and our scoring as its language model, so that transformers is not needed; its tasks are YAML
files whose `dataset_path` is `json` with local `data_files`. Nothing is asked of any hub at run time.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from yanmo.common.errors import (
    DataError,
    EnvironmentFault,
    StorageError,
    UsageError,
    is_out_of_space,
    wrong_in,
)
from yanmo.evaluate.bits.of_documents import LoadedModel
from yanmo.evaluate.bits.pieces import Pieces, PieceTask, plan_of
from yanmo.evaluate.writing.generate import generate
from yanmo.model.scoring import bits_and_is_greedy, token_bits
from yanmo.options.values import brief

log = logging.getLogger(__name__)
_NATS = float(np.log(2))
_MOST_TOKENS = 128
_PAIRS, _TEXTS, _GENERATED = 512, 64, 8
"""Questions of each kind that are answered at a time and kept."""


def folder_digest(folder: str) -> str:
    """The digest of all files of a folder of tasks, by name: on which its results depend.

    Raises:
        UsageError: there is no such folder, or no task in it.
    """
    root = Path(folder)
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    if not any(path.suffix in (".yaml", ".yml") for path in paths):
        raise UsageError(f"--harness-tasks {brief(folder)}: expected a folder with YAML files of tasks")
    found = hashlib.sha256()
    for path in paths:
        name, body = path.relative_to(root).as_posix(), path.read_bytes()
        found.update(f"{name}\0{len(body)}\0".encode() + body)
    return found.hexdigest()


def run_harness(
    loaded: LoadedModel,
    folder: str,
    *,
    limit: int = 0,
    workers: int = 1,
    pieces: Pieces | None = None,
) -> dict[str, Any]:
    """The results of every task in `folder`.

    Args:
        limit: examples of each task; 0 takes all.
        pieces: where the model's answers are kept.

    Raises:
        EnvironmentFault: lm-evaluation-harness is not installed.
        DataError: a task cannot be read, or wants data that is not there.
    """
    os.environ.update(
        HF_HUB_OFFLINE="1",
        HF_DATASETS_OFFLINE="1",
        HF_EVALUATE_OFFLINE="1",
        HF_DATASETS_DISABLE_PROGRESS_BARS="1",
    )
    try:
        import lm_eval
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise EnvironmentFault(
            f"--harness-tasks: lm-evaluation-harness is not installed ({error}); "
            "in Yanmo's checkout: pip install '.[harness]', or leave the option out"
        ) from error
    before = Path.cwd()
    os.chdir(folder)  # data_files of a task are paths in its folder
    try:
        manager = TaskManager(include_path=".", include_defaults=False)
        names = list(manager.all_tasks)
        log.info("harness %s: %s", lm_eval.__version__, ", ".join(names))
        results = lm_eval.simple_evaluate(
            model=_language_model(loaded, workers, pieces or Pieces()),
            tasks=names,
            task_manager=manager,
            limit=limit or None,
            log_samples=False,
            bootstrap_iters=1000,
        )
    except Exception as error:  # tasks run foreign code: any error can come from them
        if isinstance(error, (StorageError, DataError)) or is_out_of_space(error):  # not the tasks' fault
            raise
        raise DataError(f"{folder}: lm-evaluation-harness cannot run its tasks: {wrong_in(error)}") from error
    finally:
        os.chdir(before)
    return {"version": lm_eval.__version__, "tasks": _plain(results["results"] if results else {})}


def _plain(results: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Numbers rounded and keys sorted; the harness writes `N/A` where it has no error."""
    return {
        task: {k: round(v, 6) if isinstance(v, float) else v for k, v in sorted(metrics.items())}
        for task, metrics in sorted(results.items())
    }


def _language_model(loaded: LoadedModel, workers: int, pieces: Pieces) -> Any:
    """The harness's view of a model."""
    from lm_eval.api.model import LM

    asked = itertools.count()  # the harness asks in the same order every time

    def in_pieces(requests: Sequence[Any], size: int, answer: Callable[[list[Any]], list[Any]]) -> list[Any]:
        questions = [list(r.args) for r in requests]
        parts = [questions[i : i + size] for i in range(0, len(questions), size)]
        jobs = [PieceTask(plan_of(part), functools.partial(answer, part)) for part in parts]
        return [each for part in pieces.all(f"harness-{next(asked):02d}", jobs) for each in part]

    class OurModel(LM):  # type: ignore[misc]
        def loglikelihood(self, requests: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
            def answer(pairs: list[Any]) -> list[Any]:
                return [list(each) for each in loglikelihoods(loaded, pairs, workers)]

            return [(bits, best) for bits, best in in_pieces(requests, _PAIRS, answer)]

        def loglikelihood_rolling(self, requests: Sequence[Any], **_: Any) -> list[float]:
            def answer(texts: list[Any]) -> list[Any]:
                reads = [np.array(ids[:-1]) for ids in loaded.encode([text for (text,) in texts])]
                return [-_NATS * float(b.sum()) for b in _bits(loaded, reads, workers)]

            return in_pieces(requests, _TEXTS, answer)

        def generate_until(self, requests: Sequence[Any], **_: Any) -> list[str]:
            return in_pieces(requests, _GENERATED, lambda part: [_generated(loaded, *each) for each in part])

    return OurModel()


def loglikelihoods(
    loaded: LoadedModel, pairs: Sequence[tuple[str, str]], workers: int = 1
) -> list[tuple[float, bool]]:
    """ln p of each continuation behind its context, and whether it is what the model likes best.

    Context and continuation are encoded together and cut where the context ends, white space at its end
    belonging to the continuation, as the harness does for its own models.
    """
    cut = [_cut(context, continuation) for context, continuation in pairs]
    heads = loaded.encode([context for context, _ in cut])
    both = loaded.encode([context + continuation for context, continuation in cut])
    reads = [np.array(ids[:-1]) for ids in both]
    begins = [min(len(head) - 1, len(read) - 1) for head, read in zip(heads, reads, strict=True)]
    counted = [np.arange(1, len(read)) >= begin for read, begin in zip(reads, begins, strict=True)]
    scored = bits_and_is_greedy(
        loaded.scorers[0], reads, counted, threads=workers, batch_tokens=loaded.batch_tokens
    )
    return [(-_NATS * bits, best) for bits, best in scored]


def _bits(loaded: LoadedModel, reads: Sequence[NDArray[Any]], workers: int) -> list[NDArray[np.float64]]:
    return token_bits(loaded.scorers[0], reads, threads=workers, batch_tokens=loaded.batch_tokens)


def _cut(context: str, continuation: str) -> tuple[str, str]:
    blank = len(context) - len(context.rstrip())
    return (context[:-blank], context[-blank:] + continuation) if blank else (context, continuation)


def _generated(loaded: LoadedModel, context: str, options: dict[str, Any]) -> str:
    """The likeliest continuation of a context, cut before the first of the texts that end it."""
    until = options.get("until") or []
    prompt = loaded.encode([context])[0][:-1]
    ids = generate(
        loaded.writer(),
        [prompt],
        eos=loaded.symbols.eos,
        generator=torch.Generator().manual_seed(0),
        max_new_tokens=int(options.get("max_gen_toks", _MOST_TOKENS)),
        temperature=0.0,
    )[0]
    text: str = loaded.tokenizer.decode(ids)
    for stop in [until] if isinstance(until, str) else until:
        text = text.split(stop)[0] if stop else text
    return text
