"""`yanmo tokenizer compare`: compares tokenizers."""

from __future__ import annotations

import dataclasses
import json
import logging
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.answers import answer, only_answers
from yanmo.common.errors import DataError, ExitCode
from yanmo.common.logs import human_seconds
from yanmo.common.words import plural
from yanmo.formats.records import num_characters
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.tokenize.jieba_agreement import agreement, sentences_of, thinned
from yanmo.tokenize.segmenter import Array, Segmenter
from yanmo.tools.store.find import find
from yanmo.tools.tokenizer.candidates import Workshop, parse_candidates, read_candidate

if TYPE_CHECKING:
    from yanmo.tools.tokenizer.command import CompareOptions

log = logging.getLogger(__name__)
_SENTENCES = 4000
RARE = 20
"""An id seen less often in the learned text has hardly been trained."""


@dataclass(frozen=True)
class SampleText:
    """Texts to learn from and texts to judge by."""

    learned: list[str]
    held_out: list[str]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Metrics of one tokenizer on one text."""

    ids: int
    characters_per_token: float
    """Characters per token of the held-out text, white space included."""
    unused_ids: int
    """Ids that never occur in the learned text."""
    rare_ids: int
    """Ids seen fewer than RARE times in it, the unused ones included."""
    boundary_recall: float
    """Share of jieba's word boundaries that are token boundaries, on held-out sentences."""


def run(store: ObjectStore, options: CompareOptions) -> int:
    """Compare, and print a table."""
    wanted = parse_candidates(options.candidates, options.sizes)
    with only_answers():
        documents = find(store, options.documents, channel=options.channel, where="--documents")
        corpus = sample_of(documents, options.characters, options.held_out_characters)
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


def sample_of(output: Output, learned: int, held_out: int) -> SampleText:
    """Return evenly spread documents of the train and the valid split, of at most so many characters.

    Raises:
        DataError: nothing is left of one of the two.
    """
    texts = {
        split: _spread(
            [
                text
                for path in output.paths(f"{split}-*.parquet")
                for text in pq.read_table(path, columns=["text"])["text"].to_pylist()
                if text
            ],
            characters,
        )
        for split, characters in (("train", learned), ("valid", held_out))
    }
    if not all(texts.values()):
        raise DataError(
            f"--documents: {plural(len(texts['train']), 'document')} to learn from, {len(texts['valid'])} to "
            "judge by: expected some of both; give more text"
        )
    return SampleText(texts["train"], texts["valid"])


def _spread(texts: Sequence[str], characters: int) -> list[str]:
    total = sum(map(len, texts))
    if total <= characters:
        return list(texts)
    found, kept, passed = [], 0, 0
    for text in texts:
        passed += len(text)
        if kept + len(text) <= passed * characters / total:
            found.append(text)
            kept += len(text)
    return found


def measure(
    segmenter: Segmenter, learned: Array, held_out: Sequence[str], sentences: Sequence[str]
) -> Measured:
    """Return the metrics of a tokenizer.

    Args:
        learned: its ids of the text that it was made from.
        held_out: documents.
        sentences: of the held-out text, for the comparison with jieba.
    """
    tokens = len(segmenter.encode(pa.array(held_out, pa.string()))[0])
    seen = np.bincount(learned, minlength=segmenter.vocab_size)
    return Measured(
        ids=segmenter.vocab_size,
        characters_per_token=round(sum(map(len, held_out)) / max(tokens, 1), 4),
        unused_ids=int((seen == 0).sum()),
        rare_ids=int((seen < RARE).sum()),
        boundary_recall=agreement(segmenter, sentences)["boundary_recall"],
    )


def table(found: dict[str, Any]) -> str:
    """Return the metrics as a terminal shows them."""
    held_out, candidates = found["held_out"], found["candidates"]
    width = max(map(len, candidates)) + 2
    lines = [
        f"learned from {found['learned']['characters']:,} characters; judged by {held_out['documents']:,} "
        f"documents, {held_out['characters']:,} characters",
        "",
        f"{'':{width}}{'ids':>7}{'chars/token':>13}{'unused':>8}{'< 20 x':>8}{'boundaries':>12}",
    ]
    for name, one in candidates.items():
        line = f"{name:{width}}{one['ids']:>7}{one['characters_per_token']:>13.3f}"
        line += f"{one['unused_ids'] / one['ids']:>8.0%}{one['rare_ids'] / one['ids']:>8.0%}"
        lines.append(f"{line}{one['boundary_recall']:>12.4f}")
    return "\n".join(lines)
