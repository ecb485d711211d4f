"""`yanmo tokenizer compare`: compares tokenizers."""

from __future__ import annotations

import dataclasses
import json
import logging
import tempfile
import time
from concurrent.futures import as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from yanmo.common.answers import answer, only_answers
from yanmo.common.control_group import usable_cpus
from yanmo.common.errors import ExitCode
from yanmo.common.fork_server import preload
from yanmo.common.logs import human_seconds
from yanmo.common.words import plural
from yanmo.common.workers import Workers
from yanmo.formats.records import num_characters
from yanmo.store.objects import ObjectStore
from yanmo.tokenize.jieba_agreement import sentences_of, thinned
from yanmo.tools.store.find import find
from yanmo.tools.tokenizer.candidates import Workshop, parse_candidates, read_candidate
from yanmo.tools.tokenizer.measure import Measured, measure, save_encoded
from yanmo.tools.tokenizer.options import CompareOptions
from yanmo.tools.tokenizer.sample_text import SampleText, of_output
from yanmo.tools.tokenizer.scores import recommendation, scores

if TYPE_CHECKING:  # torch, which --help and a wrong option need not wait for
    from yanmo.tools.tokenizer.proxy import ProxyTask, Trained

log = logging.getLogger(__name__)
_SENTENCES = 4000


def run(store: ObjectStore, options: CompareOptions) -> int:
    """Compare, and print a table and one sentence."""
    wanted = parse_candidates(options.candidates, options.sizes)
    with only_answers():
        documents = find(store, options.documents, channel=options.channel, where="--documents")
        corpus = of_output(documents).limited(options.characters, options.held_out_characters)
        found = compare(corpus, wanted, options)
    answer(json.dumps(found, ensure_ascii=False, indent=1) if options.json else table(found))
    return ExitCode.DONE


def compare(corpus: SampleText, wanted: list[tuple[str, int]], options: CompareOptions) -> dict[str, Any]:
    """Everything that is known of the candidates, as `--json` prints it."""
    characters = np.array([num_characters(text) for text in corpus.held_out], np.float64)
    with tempfile.TemporaryDirectory(prefix="yanmo-tokenizers-") as folder:
        measured, jobs = _measured(corpus, wanted, options, Path(folder))
        trained = _trained(jobs, options.workers) if options.tera_operations else {}
    result: dict[str, Any] = {
        "learned": {"documents": len(corpus.learned), "characters": sum(map(len, corpus.learned))},
        "held_out": {"documents": len(corpus.held_out), "characters": int(characters.sum())},
        "tera_operations": options.tera_operations,
        "candidates": {name: dataclasses.asdict(one) for name, one in measured.items()},
    }
    if trained:
        found = scores({name: one.bits for name, one in trained.items()}, characters)
        for name, score in found.items():
            facts = {k: v for k, v in dataclasses.asdict(trained[name]).items() if k != "bits"}
            result["candidates"][name] |= dataclasses.asdict(score) | {"proxy": facts}
        density = {name: one.characters_per_token for name, one in measured.items()}
        result["recommendation"] = recommendation(found, density)
    return result


def _measured(
    corpus: SampleText, wanted: list[tuple[str, int]], options: CompareOptions, folder: Path
) -> tuple[dict[str, Measured], list[ProxyTask]]:
    from yanmo.tools.tokenizer.proxy import ProxyTask

    workshop = Workshop(corpus.learned, folder)
    sentences = thinned(sentences_of(corpus.held_out, 10**6, 10**6), _SENTENCES)
    measured: dict[str, Measured] = {}
    jobs = []
    for number, (kind, size) in enumerate(wanted):
        name = f"{kind} {size}" if size else Path(kind).name
        started = time.monotonic()
        segmenter = workshop.make(kind, size) if size else read_candidate(kind)
        encoded = folder / f"{number}.npz"
        ids = save_encoded(encoded, segmenter, corpus.learned, corpus.held_out)
        measured[name] = measure(segmenter, ids, corpus.held_out, sentences)
        log.info("%s: made and measured in %s", name, human_seconds(time.monotonic() - started))
        operations = options.tera_operations * 1e12
        jobs.append(
            ProxyTask(
                name=name,
                encoded=encoded,
                vocab_size=segmenter.vocab_size,
                operations=operations,
                seed=options.seed,
            )
        )
    return measured, jobs


def _trained(jobs: list[ProxyTask], workers: int) -> dict[str, Trained]:
    from yanmo.tools.tokenizer.proxy import train_proxy

    count = max(1, min(workers or usable_cpus(), len(jobs)))
    log.info(
        "%s of %.3g operations each, %d at a time", plural(len(jobs), "training"), jobs[0].operations, count
    )
    preload(train_proxy.__module__)
    with Workers(count) as pool:
        coming = {pool.submit(train_proxy, job, about=job.name): job.name for job in jobs}
        for future in as_completed(coming):
            one = future.result()
            log.info(
                "%s: %s, %.2f M tokens, %.1f epochs, %.2f M parameters, %s of CPU",
                coming[future],
                plural(one.steps, "step"),
                one.tokens / 1e6,
                one.epochs,
                one.parameters / 1e6,
                human_seconds(one.cpu_seconds),
            )
        return {name: future.result() for future, name in coming.items()}


def table(found: dict[str, Any]) -> str:
    """The metrics as a terminal shows them, best first."""
    held_out, candidates = found["held_out"], found["candidates"]
    order = sorted(candidates, key=lambda name: candidates[name].get("bits_per_character", 0))
    width = max(map(len, order)) + 2
    lines = [
        f"learned from {found['learned']['characters']:,} characters; judged by {held_out['documents']:,} "
        f"documents, {held_out['characters']:,} characters; {found['tera_operations']:g}e12 operations each",
        "",
        f"{'':{width}}{'ids':>7}{'chars/token':>13}{'unused':>8}{'< 20 x':>8}{'boundaries':>12}{'MB/s':>8}"
        f"{'bits/char':>11}   95 % interval",
    ]
    for name in order:
        one = candidates[name]
        line = f"{name:{width}}{one['ids']:>7}{one['characters_per_token']:>13.3f}"
        line += f"{one['unused_ids'] / one['ids']:>8.0%}{one['rare_ids'] / one['ids']:>8.0%}"
        line += f"{one['boundary_recall']:>12.4f}{one['megabytes_per_second']:>8.1f}"
        if "interval" in one:
            low, high = one["interval"]
            line += f"{one['bits_per_character']:>11.3f}   {low:.3f}-{high:.3f}"
        lines.append(line)
    return "\n".join([*lines, "", found.get("recommendation", "")]).rstrip()
