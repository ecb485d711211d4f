"""`yanmo tokenizer compare`: compares tokenizers."""

from __future__ import annotations

import dataclasses
import json
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from yanmo.common.answers import answer, only_answers
from yanmo.common.errors import ExitCode
from yanmo.common.logs import human_seconds
from yanmo.formats.records import num_characters
from yanmo.store.objects import ObjectStore
from yanmo.tokenize.jieba_agreement import sentences_of, thinned
from yanmo.tools.store.find import find
from yanmo.tools.tokenizer.candidates import Workshop, parse_candidates, read_candidate
from yanmo.tools.tokenizer.measure import Measured, measure
from yanmo.tools.tokenizer.options import CompareOptions
from yanmo.tools.tokenizer.sample_text import SampleText, of_output

log = logging.getLogger(__name__)
_SENTENCES = 4000


def run(store: ObjectStore, options: CompareOptions) -> int:
    """Compare, and print a table."""
    wanted = parse_candidates(options.candidates, options.sizes)
    with only_answers():
        documents = find(store, options.documents, channel=options.channel, where="--documents")
        corpus = of_output(documents).limited(options.characters, options.held_out_characters)
        found = compare(corpus, wanted)
    answer(json.dumps(found, ensure_ascii=False, indent=1) if options.json else table(found))
    return ExitCode.DONE


def compare(corpus: SampleText, wanted: list[tuple[str, int]]) -> dict[str, Any]:
    """Return everything that is known of the candidates, as `--json` prints it."""
    with tempfile.TemporaryDirectory(prefix="yanmo-tokenizers-") as folder:
        measured = _measured(corpus, wanted, Path(folder))
    characters = sum(map(num_characters, corpus.held_out))
    return {
        "learned": {"documents": len(corpus.learned), "characters": sum(map(len, corpus.learned))},
        "held_out": {"documents": len(corpus.held_out), "characters": characters},
        "candidates": {name: dataclasses.asdict(one) for name, one in measured.items()},
    }


def _measured(corpus: SampleText, wanted: list[tuple[str, int]], folder: Path) -> dict[str, Measured]:
    workshop = Workshop(corpus.learned, folder)
    sentences = thinned(sentences_of(corpus.held_out, 10**6, 10**6), _SENTENCES)
    measured: dict[str, Measured] = {}
    for kind, size in wanted:
        name = f"{kind} {size}" if size else Path(kind).name
        started = time.monotonic()
        segmenter = workshop.make(kind, size) if size else read_candidate(kind)
        learned = segmenter.encode(pa.array(corpus.learned, pa.string()))[0]
        measured[name] = measure(segmenter, learned, corpus.held_out, sentences)
        log.info("%s: made and measured in %s", name, human_seconds(time.monotonic() - started))
    return measured


def table(found: dict[str, Any]) -> str:
    """Return the metrics as a terminal shows them."""
    held_out, candidates = found["held_out"], found["candidates"]
    width = max(map(len, candidates)) + 2
    lines = [
        f"learned from {found['learned']['characters']:,} characters; judged by {held_out['documents']:,} "
        f"documents, {held_out['characters']:,} characters",
        "",
        f"{'':{width}}{'ids':>7}{'chars/token':>13}{'unused':>8}{'< 20 x':>8}{'boundaries':>12}{'MB/s':>8}",
    ]
    for name, one in candidates.items():
        line = f"{name:{width}}{one['ids']:>7}{one['characters_per_token']:>13.3f}"
        line += f"{one['unused_ids'] / one['ids']:>8.0%}{one['rare_ids'] / one['ids']:>8.0%}"
        lines.append(f"{line}{one['boundary_recall']:>12.4f}{one['megabytes_per_second']:>8.1f}")
    return "\n".join(lines)
