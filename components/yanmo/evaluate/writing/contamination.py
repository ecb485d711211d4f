"""How much of the evaluation set is in the text that a model was trained on, as far as the store shows it.

Measured once with every evaluation, whatever `--samples` says, and recorded with it: the part `contamination`
in the evaluation's manifest, keyed by evaluation set and training text, so that all models of one text share
it. Where the store does not name all of that text, `--documents` is searched too. The bundled corpus takes
half a CPU-second.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from yanmo.chinese.text_runs import units
from yanmo.common.errors import DataError
from yanmo.common.words import plural
from yanmo.evaluate.documents.reading import (
    Document,
    distinct_batches,
    genre_order,
    read_confirmation,
    read_split,
)
from yanmo.evaluate.hand_over import EvaluateRun
from yanmo.evaluate.writing.copies import Copies, find_copies
from yanmo.evaluate.writing.windows import han_codes
from yanmo.formats.documents import text_form
from yanmo.formats.training_text import training_text
from yanmo.store.commit import Attempt, Result
from yanmo.store.output import Output, read_json

log = logging.getLogger(__name__)
NAME = "contamination"
REVISION = 4
"""Raised by hand when the same texts give other results."""
WINDOW = 13
"""Characters (in modern text words too) of a run by which a test document counts as found (curate's too)."""
_FIFTH = 0.2


def committed_contamination(run: EvaluateRun) -> Output | None:
    """The part, made if need be; None where the store names no training text, or it cannot be read."""
    texts, _ = searched_texts(run)
    evaluation_set, split = run.input("evaluation_set"), run.options.split
    if not texts:
        return None
    names = ["documents", *(f"documents_{i}" for i in range(2, len(texts) + 1))]

    def build(attempt: Attempt) -> Result:
        kept = read_confirmation(evaluation_set, split)
        found = contamination(read_split(evaluation_set, split), texts, kept, form=text_form(evaluation_set))
        attempt.write_json(f"{NAME}.json", {"schema": "yanmo.contamination/1", **found})
        return Result(counts={"documents": sum(g["documents"] for g in found["genres"].values())})

    inputs = {**dict(zip(names, texts, strict=True)), "evaluation_set": evaluation_set}
    try:
        return run.part(NAME, REVISION, {"split": split}, inputs, build)
    except DataError as error:
        log.warning("the training text of %s cannot be read: %s", run.input("model"), error)
        return None


def searched_texts(run: EvaluateRun) -> tuple[list[Output], list[str]]:
    """Return the texts in which copies are looked for, and why there may be more of them.

    They are those of the model's lineage: that a text is not in another one says nothing. Where the lineage
    has gaps, the documents that the run was given may be what is missing.
    """
    known, given = training_text(run.input("model")), run.inputs.get("documents")
    if given is None or not known.unknown or given.content_digest in known.digests():
        return known.texts, known.unknown
    return [*known.texts, given], known.unknown


def report_contamination(output: Output) -> None:
    """Log how much of the test split the model was trained on; a warning unless it is none."""
    model = output.input("model")
    gaps = training_text(model).unknown if model else []
    if NAME not in output.manifest.references:
        why = "; ".join(gaps) or "no training text was found"
        log.warning("contamination=unknown: whether %s was trained on these documents: %s", model, why)
        return
    found = read_json(output.part(NAME), f"{NAME}.json")
    name_of_hits = "with_a_fifth_shared" if found["least_share"] else "with_a_shared_run"
    hits, of, short = (
        sum(genre[name] for genre in found["genres"].values())
        for name in (name_of_hits, "documents", "too_short")
    )
    if hits:
        log.warning(
            "contamination=%.4f: %s was trained on %d of %s (they share %s of %d characters "
            "with its training text: %s); its bits on them measure nothing, and above --max-contamination "
            "`yanmo promote` says not valid",
            found["share"],
            model,
            hits,
            plural(of - short, "document"),
            "a fifth of themselves, in runs" if found["least_share"] else "a run",
            WINDOW,
            _by_genre(found["genres"], name_of_hits),
        )
    elif found["share"] is None:
        log.warning("contamination=unknown: no document holds a run of %d characters", WINDOW)
    elif not gaps:
        log.info(
            "contamination=0: none of %s is in the training text of %s",
            plural(of - short, "document"),
            model,
        )
    if short:
        log.info(
            "%d of %s are too short to be looked for in the training text", short, plural(of, "document")
        )
    if gaps:
        log.warning("the contamination may be higher: not all training text is known: %s", "; ".join(gaps))


def _by_genre(genres: Mapping[str, Mapping[str, int]], name_of_hits: str) -> str:
    return ", ".join(
        f"{name} {genre[name_of_hits]} of {genre['documents']}" for name, genre in genres.items()
    )


def contamination(
    scored: Sequence[Document],
    documents: Sequence[Output],
    kept: Sequence[Document] = (),
    *,
    form: str = "classical-1",
) -> dict[str, Any]:
    """Return how many of the scored documents share runs of 13 Han characters with the training text.

    In a chat its answers count, as everywhere: all chats of a template share the words of its question. The
    share is taken over the documents long enough to hold such a run; without any there is no share.

    Args:
        kept: the documents of the confirmation split, counted under `confirmation`.
        form: text form of the documents. In classical-1 a document is found by one such run, in others by a
            fifth of itself, words and numbers counted too: there manuals and newsletters repeat their own
            sentences, and curate leaves as much (split/train_split.py).
    """
    both, is_classical = [*scored, *kept], form.startswith("classical")
    cut, least_share = (han_codes, 0.0) if is_classical else (units, _FIFTH)
    found = find_copies([d.charged for d in both], distinct_batches(documents), WINDOW, cut)
    first = slice(len(scored))
    result = {"least_share": least_share, **_counted(scored, found, first, least_share)}
    if not kept:
        return result
    return {**result, "confirmation": _counted(kept, found, slice(len(scored), None), least_share)}


def _counted(
    documents: Sequence[Document], copies: Copies, part: slice, least_share: float
) -> dict[str, Any]:
    """Return what was found of `documents`, whose rows of `copies` are `part`."""
    windows, covered, characters = copies.windows[part], copies.covered[part], copies.characters[part]
    hit, genres = copies.copied[part] > 0, np.array([d.genre for d in documents])
    covered = np.divide(covered, characters, out=np.zeros(len(hit)), where=characters > 0)
    by_genre = {
        genre: {
            "documents": int((genres == genre).sum()),
            "too_short": int((windows[genres == genre] == 0).sum()),
            "with_a_shared_run": int(hit[genres == genre].sum()),
            "with_a_fifth_shared": int((covered[genres == genre] > _FIFTH).sum()),
        }
        for genre in sorted(set(genres.tolist()), key=genre_order)
    }
    searched = int((windows > 0).sum())
    found = covered > least_share if least_share else hit
    share = round(int(found.sum()) / searched, 5) if searched else None
    return {"window": WINDOW, "share": share, "genres": by_genre}
