"""Benchmarks of others: tasks of lm-evaluation-harness, from a local folder, through its own API.

The harness is an extra of its own (`pip install yanmo[harness]`), as it brings forty packages. It is given
our decoder and our scoring as its language model, so that transformers is not needed; its tasks are YAML
files whose `dataset_path` is `json` with local `data_files`. Nothing is asked of any hub at run time.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from yanmo.common.errors import DataError, EnvironmentFault, UsageError
from yanmo.evaluate.scoring import LoadedModel
from yanmo.model.generate import generate
from yanmo.model.scoring import are_likeliest, token_bits

log = logging.getLogger(__name__)
_NATS = float(np.log(2))
_MOST_TOKENS = 128


def folder_digest(folder: str) -> str:
    """The digest of all files of a folder of tasks, by name: what its figures depend on.

    Raises:
        UsageError: there is no such folder, or no task in it.
    """
    root = Path(folder)
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    if not any(path.suffix in (".yaml", ".yml") for path in paths):
        raise UsageError(f"--harness-tasks {folder}: expected a folder with YAML files of tasks")
    found = hashlib.sha256()
    for path in paths:
        name, body = path.relative_to(root).as_posix(), path.read_bytes()
        found.update(f"{name}\0{len(body)}\0".encode() + body)
    return found.hexdigest()


def run_harness(loaded: LoadedModel, folder: str, *, limit: int = 0, workers: int = 1) -> dict[str, Any]:
    """The figures of every task in `folder`.

    Args:
        limit: examples of each task; 0 takes all.

    Raises:
        EnvironmentFault: lm-evaluation-harness is not installed.
        DataError: a task cannot be read, or wants data that is not there.
    """
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_EVALUATE_OFFLINE="1")
    try:
        import lm_eval
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise EnvironmentFault(
            f"--harness-tasks: lm-evaluation-harness is not installed ({error}); "
            "pip install 'yanmo[harness]', or leave the option out"
        ) from error
    before = Path.cwd()
    os.chdir(folder)  # data_files of a task are paths beside it
    try:
        manager = TaskManager(include_path=".", include_defaults=False)
        names = list(manager.all_tasks)
        log.info("harness %s: %s", lm_eval.__version__, ", ".join(names))
        results = lm_eval.simple_evaluate(
            model=_language_model(loaded, workers),
            tasks=names,
            task_manager=manager,
            limit=limit or None,
            log_samples=False,
            bootstrap_iters=1000,
        )
    except Exception as error:  # tasks are code of others: anything can come out of them
        raise DataError(f"{folder}: lm-evaluation-harness cannot run its tasks: {error!r}") from error
    finally:
        os.chdir(before)
    return {"version": lm_eval.__version__, "tasks": _plain(results["results"] if results else {})}


def _plain(results: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Numbers rounded and keys sorted; the harness writes `N/A` where it has no error."""
    return {
        task: {k: round(v, 6) if isinstance(v, float) else v for k, v in sorted(figures.items())}
        for task, figures in sorted(results.items())
    }


def _language_model(loaded: LoadedModel, workers: int) -> Any:
    """The harness's view of a model."""
    from lm_eval.api.model import LM

    class OurModel(LM):  # type: ignore[misc]
        def loglikelihood(self, requests: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
            return loglikelihoods(loaded, [r.args for r in requests], workers)

        def loglikelihood_rolling(self, requests: Sequence[Any], **_: Any) -> list[float]:
            reads = [np.array(loaded.encode([r.args[0]])[0][:-1]) for r in requests]
            return [-_NATS * float(b.sum()) for b in token_bits(loaded.reader, reads, threads=workers)]

        def generate_until(self, requests: Sequence[Any], **_: Any) -> list[str]:
            return [_generated(loaded, *r.args) for r in requests]

    return OurModel()


def loglikelihoods(
    loaded: LoadedModel, pairs: Sequence[tuple[str, str]], workers: int = 1
) -> list[tuple[float, bool]]:
    """ln p of each continuation behind its context, and whether it is what the model likes best.

    Context and continuation are encoded together and cut where the context ends, white space at its end
    belonging to the continuation, as the harness does for its own models.
    """
    reads, counted = [], []
    for context, continuation in pairs:
        blank = len(context) - len(context.rstrip())
        if blank:
            continuation, context = context[-blank:] + continuation, context[:-blank]
        both = loaded.encode([context + continuation])[0][:-1]
        head = min(len(loaded.encode([context])[0]) - 1, len(both) - 1)
        reads.append(np.array(both))
        counted.append(np.arange(1, len(both)) >= head)
    scored = are_likeliest(loaded.reader, reads, counted, threads=workers)
    return [(-_NATS * bits, best) for bits, best in scored]


def _generated(loaded: LoadedModel, context: str, options: dict[str, Any]) -> str:
    """The likeliest continuation of a context, cut before the first of the texts that end it."""
    until = options.get("until") or []
    prompt = loaded.encode([context])[0][:-1]
    ids = generate(
        loaded.model,
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
