"""What a model must beat: `xz -9e`, PPMd, a character 5-gram and its mixture by genre, which all read the
training text first.

Committed as a part of their own, keyed by training text and evaluation set: measuring another model, or the
same one with other options, never computes them again. One process each: 28 CPU-seconds for 3.5 M characters
of training text, of which xz takes 12, PPMd 7 and the 5-grams 9 (benchmarks/baselines.py at 12c635da).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, as_completed
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.child_processes import preload
from yanmo.common.words import plural
from yanmo.common.workers import Workers
from yanmo.evaluate.baselines.compressors import added_by_ppmd, added_by_xz
from yanmo.evaluate.baselines.mixture import mixture_bits
from yanmo.evaluate.documents.reading import (
    Document,
    TrainingDocument,
    by_genre,
    check_same_form,
    first_of_each_genre,
    genre_order,
    read_split,
    training_texts,
)
from yanmo.evaluate.documents.table import evaluation_table, write_documents
from yanmo.evaluate.hand_over import EvaluateRun
from yanmo.evaluate.measures import Bootstrap, summarize
from yanmo.formats.documents import text_form
from yanmo.formats.records import num_characters
from yanmo.store.commit import Attempt, Result
from yanmo.store.output import Output

log = logging.getLogger(__name__)
REVISION = 4
"""Raised by hand when the same texts give other bytes; 3 gave the same results as 4."""
_BOOTSTRAP = Bootstrap(draws=2000, seed=0)
Floats = npt.NDArray[np.float64]


def committed_baselines(run: EvaluateRun, documents_per_genre: int = 0) -> Output:
    """The baselines of this run's texts, made if need be; the run must have training documents.

    Args:
        documents_per_genre: how many of each genre the model was measured on; 0 for all.
    """
    documents = run.input("documents")
    options, evaluation_set = run.options, run.input("evaluation_set")

    def build(attempt: Attempt) -> Result:
        return _build(
            attempt,
            documents,
            evaluation_set,
            options.split,
            options.baseline_characters,
            documents_per_genre,
        )

    return run.part(
        "baselines",
        REVISION,
        {"split": options.split, "baseline_characters": options.baseline_characters}
        | ({"documents_per_genre": documents_per_genre} if documents_per_genre else {}),
        {"documents": documents, "evaluation_set": evaluation_set},
        build,
    )


def _build(
    attempt: Attempt,
    documents: Output,
    evaluation_set: Output,
    split: str,
    most: int,
    per_genre: int,
) -> Result:
    check_same_form(evaluation_set, documents, "baselines from")
    scored = first_of_each_genre(_plain_texts(evaluation_set, split), per_genre)
    other = next(name for name in ("valid", "test") if name != split)
    fitted = _plain_texts(evaluation_set, other) if evaluation_set.entries(f"{other}-*.parquet") else []
    sources = training_texts(documents, most)
    log.info("baselines: xz -9e, PPMd and 5-grams learn from %s", plural(len(sources), "document"))
    compressed, ppmd, (plain, mixed, weights) = _measure(sources, fitted, scored)
    summary = {
        "schema": "yanmo.baselines/4",
        "evaluation_set": evaluation_set.content_digest,
        "split": split,
        "baselines": {
            "xz": {"title": "xz -9e", **compressed},
            "ppmd": {"title": "PPMd", **summarize(scored, ppmd, _BOOTSTRAP)},
            "ngram": {"title": "5-gram", **summarize(scored, plain, _BOOTSTRAP)},
            "mixture": {
                "title": "5-gram mixture",
                "with_genre_tag": True,
                "weights": weights,
                **summarize(scored, mixed, _BOOTSTRAP),
            },
        },
    }
    attempt.write_json("summary.json", summary)
    lengths = np.array([len(d.text) + 1 for d in scored], np.int32)
    for name, each in (("ppmd", ppmd), ("ngram", plain), ("mixture", mixed)):
        table = evaluation_table(scored, split, lengths, each, None)
        write_documents(attempt, name, table, text_form(evaluation_set))
    return Result(counts={"documents": len(scored), "training_documents": len(sources)})


def _plain_texts(evaluation_set: Output, split: str) -> list[Document]:
    """The documents that are no chats: in a chat a model is charged for the answers, a baseline for
    everything."""
    return [d for d in read_split(evaluation_set, split) if not d.turns]


def _measure(
    sources: Sequence[TrainingDocument],
    fitted: Sequence[Document],
    scored: Sequence[Document],
) -> list[Any]:
    """The results of xz, PPMd's bits of each document, and those of the 5-grams; made at the same time."""
    texts = [source.text for source in sources]
    less = "a lower --baseline-characters (about 300 bytes for each of them, and 0.8 GB for xz)"
    preload(__name__)
    with Workers(3, less) as workers:
        coming: list[Future[Any]] = [
            workers.submit(xz_results, texts, scored),
            workers.submit(ppmd_bits, texts, scored),
            workers.submit(mixture_bits, by_genre(sources), fitted, scored),
        ]
        for future in as_completed(coming):
            future.result()
    return [future.result() for future in coming]


def ppmd_bits(texts: Sequence[str], scored: Sequence[Document]) -> Floats:
    """Bits of each document that PPMd adds after `texts`, its line break included, genre by genre."""
    genres = sorted({d.genre for d in scored}, key=genre_order)
    rows = [[i for i, d in enumerate(scored) if d.genre == genre] for genre in genres]
    sizes = added_by_ppmd(
        _bytes("\n".join(texts) + "\n"), [[_bytes(scored[i].text + "\n") for i in each] for each in rows]
    )
    bits = np.zeros(len(scored))
    for each, size in zip(rows, sizes, strict=True):
        bits[each] = 8.0 * np.array(size)
    return bits


def xz_results(texts: Sequence[str], scored: Sequence[Document]) -> dict[str, Any]:
    """Bits per character that `xz -9e` adds, by genre; one line break between documents counts.

    Genres only: the bytes of one document depend on those before it.
    """
    genres = sorted({d.genre for d in scored}, key=genre_order)
    joined = {g: "\n".join(d.text for d in scored if d.genre == g) for g in genres}
    sizes = added_by_xz(_bytes("\n".join(texts) + "\n"), [_bytes(text) for text in joined.values()])
    results = {
        genre: {
            "documents": sum(d.genre == genre for d in scored),
            "characters": num_characters(text),
            "bits_per_character": round(8 * size / num_characters(text), 4),
        }
        for (genre, text), size in zip(joined.items(), sizes, strict=True)
    }
    mean = np.mean([float(f["bits_per_character"]) for f in results.values()])
    return {"genres": results, "mean": {"bits_per_character": round(float(mean), 4)}}


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
