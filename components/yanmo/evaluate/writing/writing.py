"""How a model writes, compared with held-out originals: verse, copies, variety.

Committed as a part of its own, keyed by evaluation, evaluation set and training text: an evaluation does not
depend on the training text (any model is measured without it), these results do. The bundled corpus with
256 samples took 15 CPU-seconds under a profiler.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yanmo.common.words import plural
from yanmo.evaluate.documents.reading import (
    Document,
    by_genre,
    distinct_batches,
    genre_order,
    read_split,
)
from yanmo.evaluate.hand_over import EvaluateRun
from yanmo.evaluate.verse.verse_rules import Text
from yanmo.evaluate.verse.verse_table import learn, verse_table
from yanmo.evaluate.writing.contamination import searched_texts
from yanmo.evaluate.writing.copies import Copies, find_copies, nearest
from yanmo.evaluate.writing.degeneration import GenreJudge, cut_alike, variety
from yanmo.store.commit import Attempt, Result
from yanmo.store.output import Output, read_json
from yanmo.verse.poems import read_poem

log = logging.getLogger(__name__)
REVISION = 10
"""Raised by hand when the same texts give other results, or other files."""
WINDOW = 8
"""Han characters of a run that counts as copied; human verse shares some too, so originals are measured as
well."""
_LIMITED = ("loops", "copied_8grams", "longest_copy", "genre_obedience")
"""Metrics on which promote can set limits."""
SHOWN = 4
"""Samples of each genre that are shown, with their nearest training documents."""


@dataclass(frozen=True)
class _Written:
    """Texts of one origin, parallel lists."""

    origin: str
    ids: list[str]
    genres: list[str]
    texts: list[str]
    verse: list[Text]
    ended: list[bool]

    def of(self, genre: str) -> list[int]:
        return [i for i, each in enumerate(self.genres) if each == genre]


def committed_writing(run: EvaluateRun, evaluation: Output) -> Output:
    """The part `writing` of this evaluation's samples, made if need be; the run must have training documents.

    Copies are looked for in the text that the model was trained on, whatever documents the run was given.
    """
    (texts, gaps), evaluation_set = searched_texts(run), run.input("evaluation_set")
    model, given = run.input("model"), run.input("documents")
    for gap in gaps:
        log.warning("not all of the training text of %s is known: %s", model, gap)
    if given.content_digest not in {text.content_digest for text in texts}:
        named = ", ".join(map(str, texts))
        log.warning("%s is not what %s was trained on; looking for copies in %s", given, model, named)
    split = evaluation.manifest.metadata["split"]
    names = ["documents", *(f"documents_{i}" for i in range(2, len(texts) + 1))]
    return run.part(
        "writing",
        REVISION,
        {"split": split},
        {"evaluation": evaluation, **dict(zip(names, texts, strict=True)), "evaluation_set": evaluation_set},
        lambda attempt: _build(attempt, evaluation, texts, evaluation_set, split),
    )


def _build(
    attempt: Attempt, evaluation: Output, documents: Sequence[Output], evaluation_set: Output, split: str
) -> Result:
    scored = read_split(evaluation_set, split)
    originals, samples = _originals(scored), _generated(read_json(evaluation, "samples.json"))
    log.info("writing: %s and %s", plural(len(samples.texts), "sample"), plural(len(scored), "original"))
    knowledge = learn((s.genre, s.title, s.text) for batch in distinct_batches(documents) for s in batch)
    judge = GenreJudge(by_genre(s for batch in distinct_batches(documents) for s in batch))
    both = (originals, samples)
    copies = _copies(both, documents)
    looks = [judge.genres_of(written.texts) for written in both]
    genres = sorted({*originals.genres, *samples.genres}, key=genre_order)
    found = {g: _by_origin(g, both, copies, looks) for g in genres}
    means = {w.origin: _over_genres([genre[w.origin] for genre in found.values()]) for w in both}
    rules = verse_table(knowledge, *(_verse(written) for written in both))
    attempt.write_json("verse.json", {"schema": "yanmo.verse/1", "rules": rules})
    attempt.write_json(
        "memorization.json",
        {
            "schema": "yanmo.memorization/1",
            "window": WINDOW,
            "genre_by_chance": round(1 / len(judge.genres), 4),
            **means,
            "samples": {name: means["generated"][name] for name in _LIMITED},
            "genres": found,
            "nearest": _nearest(samples, documents),
        },
    )
    return Result(counts={"samples": len(samples.texts), "originals": len(scored)})


def _originals(scored: Sequence[Document]) -> _Written:
    return _Written(
        "held_out",
        [d.id for d in scored],
        [d.genre for d in scored],
        [d.charged for d in scored],
        [Text(read_poem(d.charged), d.title) for d in scored],
        [True] * len(scored),
    )


def _generated(samples: Mapping[str, Any]) -> _Written:
    rows = [(genre, i, s) for genre, texts in samples["genres"].items() for i, s in enumerate(texts)]
    return _Written(
        "generated",
        [f"{genre}/{i:04d}" for genre, i, _ in rows],
        [genre for genre, _, _ in rows],
        [s["text"] for _, _, s in rows],
        [Text(read_poem(s["text"], s["ended"]), None) for _, _, s in rows],
        [s["ended"] for _, _, s in rows],
    )


def _verse(written: _Written) -> dict[str, list[Text]]:
    return {genre: [written.verse[i] for i in written.of(genre)] for genre in set(written.genres)}


def _copies(both: Sequence[_Written], documents: Sequence[Output]) -> list[Copies]:
    """One pass over the training text for both origins."""
    texts = [text for written in both for text in written.texts]
    found = find_copies(texts, distinct_batches(documents), WINDOW)
    cut = len(both[0].texts)
    parts = [{n: v[part] for n, v in vars(found).items()} for part in (slice(cut), slice(cut, None))]
    return [Copies(**part) for part in parts]


def _by_origin(
    genre: str, both: Sequence[_Written], copies: Sequence[Copies], looks: Sequence[Sequence[str]]
) -> dict[str, dict[str, Any]]:
    """Origin -> metrics of the texts of one genre.

    Originals are cut to the samples' lengths where their variety is measured, so that it can be compared.
    """
    samples = [both[1].texts[i] for i in both[1].of(genre)]
    result = {}
    for written, copy, looked in zip(both, copies, looks, strict=True):
        rows = written.of(genre)
        texts, ended = [written.texts[i] for i in rows], [written.ended[i] for i in rows]
        if written is both[0] and samples:
            texts, ended = cut_alike(texts, samples), [True] * len(samples)
        right = sum(looked[i] == genre for i in rows)
        result[written.origin] = {
            **variety(texts, ended[: len(texts)]),
            "genre_obedience": _share(right, len(rows)),
            **_copied(written, copy, rows),
        }
    return result


def _copied(written: _Written, copies: Copies, rows: list[int]) -> dict[str, Any]:
    windows, longest = int(copies.windows[rows].sum()), copies.longest[rows]
    return {
        "windows": windows,
        "copied_8grams": _share(int(copies.copied[rows].sum()), windows),
        "longest_copy": int(longest.max(initial=0)),
        "longest_copy_in": written.ids[rows[int(longest.argmax())]] if longest.any() else None,
    }


def _over_genres(genres: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The headline metrics: means over genres, but the longest copy of all."""
    names = ("copied_8grams", "loops", "repeated_lines", "distinct_1", "distinct_2", "distinct_3")
    known = {n: [g[n] for g in genres if g[n] is not None] for n in (*names, "genre_obedience", "ended")}
    means = {n: round(float(np.mean(values)), 5) if values else None for n, values in known.items()}
    return {**means, "longest_copy": max((g["longest_copy"] for g in genres), default=None)}


def _nearest(samples: _Written, documents: Sequence[Output]) -> dict[str, Any]:
    """Sample -> the training document most like it."""
    shown = [i for genre in dict.fromkeys(samples.genres) for i in samples.of(genre)[:SHOWN]]
    found = nearest([samples.texts[i] for i in shown], distinct_batches(documents))
    return {samples.ids[i]: each for i, each in zip(shown, found, strict=True)}


def _share(part: int, of: int) -> float | None:
    return round(part / of, 5) if of else None
