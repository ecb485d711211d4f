"""How a model writes, beside held-out originals: verse, copies, variety; and what of the test is in training.

Committed as a part of its own, keyed by evaluation, evaluation set and training text: an evaluation does not
depend on the training text (the champion is measured without it), these figures do. The bundled corpus takes
13 CPU-seconds (benchmarks/baselines.py).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from yanmo.common.records import WRITING
from yanmo.common.stage_run import StageRun
from yanmo.common.store.commit import Attempt, Result
from yanmo.common.store.output import Output, read_json
from yanmo.evaluate.copies import Copies, find_copies, nearest
from yanmo.evaluate.degeneration import GenreJudge, cut_alike, has_loop, variety
from yanmo.evaluate.documents import Document, by_genre, genre_order, read_split, training_batches
from yanmo.evaluate.table import write_documents
from yanmo.evaluate.verse.poems import read_poem
from yanmo.evaluate.verse.report import learn, tallies, verse_table
from yanmo.evaluate.verse.rules import Knowledge, Text

log = logging.getLogger(__name__)
REVISION = 1
"""Raised by hand when the same texts give other figures."""
WINDOW = 8
"""Han characters of a run that counts as copied; human verse shares some, so originals stand beside."""
CONTAMINATION = 13
"""Han characters of a run by which a test document counts as found in the training text (curate's too)."""
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


def committed_writing(run: StageRun, evaluation: Output) -> Output:
    """The figures of this evaluation's samples, made if need be; the run must have training documents."""
    documents, evaluation_set = run.input("documents"), run.input("evaluation_set")
    split = evaluation.manifest.metadata["split"]
    return run.part(
        "writing",
        REVISION,
        {"split": split},
        {"evaluation": evaluation, "documents": documents, "evaluation_set": evaluation_set},
        lambda attempt: _build(attempt, evaluation, documents, read_split(evaluation_set, split)),
    )


def _build(attempt: Attempt, evaluation: Output, documents: Output, scored: Sequence[Document]) -> Result:
    originals, samples = _originals(scored), _generated(read_json(evaluation, "samples.json"))
    log.info("writing: %d samples beside %d originals", len(samples.texts), len(scored))
    knowledge = learn((s.genre, s.title, s.text) for batch in training_batches(documents) for s in batch)
    judge = GenreJudge(by_genre(s for batch in training_batches(documents) for s in batch))
    both = (originals, samples)
    copies = _copies(both, documents)
    looks = [judge.genres_of(written.texts) for written in both]
    genres = sorted({*originals.genres, *samples.genres}, key=genre_order)
    figures = {
        "schema": "yanmo.writing/1",
        "verse": verse_table(knowledge, *(_verse(written) for written in both)),
        "copies": {"window": WINDOW, "genres": _by_origin(genres, both, copies, _copied)},
        "variety": {g: _variety(g, originals, samples) for g in genres},
        "looks_like_its_genre": {
            "chance": round(1 / len(judge.genres), 4),
            "genres": _by_origin(genres, both, looks, _looking_right),
        },
        "nearest": _nearest(samples, documents),
        "contamination": contamination(scored, documents),
    }
    attempt.write("writing.json", json.dumps(figures, ensure_ascii=False, indent=1) + "\n")
    tables = [_table(w, knowledge, c, seen) for w, c, seen in zip(both, copies, looks, strict=True)]
    write_documents(attempt, "texts", pa.concat_tables(tables))
    return Result(counts={"samples": len(samples.texts), "originals": len(scored)})


def _originals(scored: Sequence[Document]) -> _Written:
    return _Written(
        "held_out",
        [d.id for d in scored],
        [d.genre for d in scored],
        [d.text for d in scored],
        [Text(read_poem(d.text), d.title) for d in scored],
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


def _copies(both: Sequence[_Written], documents: Output) -> list[Copies]:
    """One pass over the training text for both origins."""
    texts = [text for written in both for text in written.texts]
    found = find_copies(texts, training_batches(documents), WINDOW)
    cut = len(both[0].texts)
    parts = [{n: v[part] for n, v in vars(found).items()} for part in (slice(cut), slice(cut, None))]
    return [Copies(**part) for part in parts]


def _by_origin(genres: Sequence[str], both: Sequence[_Written], found: Sequence[Any], figures: Any) -> Any:
    """Genre -> origin -> figures of its texts."""
    return {
        genre: {w.origin: figures(w, f, w.of(genre)) for w, f in zip(both, found, strict=True)}
        for genre in genres
    }


def _copied(written: _Written, copies: Copies, rows: list[int]) -> dict[str, Any]:
    windows, copied = int(copies.windows[rows].sum()), int(copies.copied[rows].sum())
    longest = copies.longest[rows]
    return {
        "texts": len(rows),
        "windows": windows,
        "share": _share(copied, windows),
        "longest_run": int(longest.max(initial=0)),
        "longest_run_in": written.ids[rows[int(longest.argmax())]] if longest.any() else None,
    }


def _looking_right(written: _Written, looks: Sequence[str], rows: list[int]) -> dict[str, Any]:
    right = sum(looks[i] == written.genres[i] for i in rows)
    return {"texts": len(rows), "share": _share(right, len(rows))}


def _variety(genre: str, originals: _Written, samples: _Written) -> dict[str, Any]:
    """The originals are cut to the samples' lengths, so that their figures can be compared."""
    rows = samples.of(genre)
    texts = [samples.texts[i] for i in rows]
    alike = cut_alike([originals.texts[i] for i in originals.of(genre)], texts)
    return {
        "held_out": variety(alike, [True] * len(alike)),
        "generated": variety(texts, [samples.ended[i] for i in rows]),
    }


def _nearest(samples: _Written, documents: Output) -> dict[str, Any]:
    shown = [i for genre in dict.fromkeys(samples.genres) for i in samples.of(genre)[:SHOWN]]
    found = nearest([samples.texts[i] for i in shown], training_batches(documents))
    return {samples.ids[i]: each for i, each in zip(shown, found, strict=True)}


def contamination(scored: Sequence[Document], documents: Output) -> dict[str, Any]:
    """How many of the scored documents share a run of 13 Han characters with the training text."""
    found = find_copies([d.text for d in scored], training_batches(documents), CONTAMINATION)
    hit, genres = found.copied > 0, np.array([d.genre for d in scored])
    covered = np.divide(found.covered, found.characters, out=np.zeros(len(hit)), where=found.characters > 0)
    by_genre = {
        genre: {
            "documents": int((genres == genre).sum()),
            "with_a_shared_run": int(hit[genres == genre].sum()),
            "with_a_fifth_shared": int((covered[genres == genre] > 0.2).sum()),
        }
        for genre in sorted(set(genres.tolist()), key=genre_order)
    }
    return {"window": CONTAMINATION, "share": _share(int(hit.sum()), len(hit)), "genres": by_genre}


def _share(part: int, of: int) -> float | None:
    return round(part / of, 5) if of else None


def _table(written: _Written, knowledge: Knowledge, copies: Copies, looks: Sequence[str]) -> pa.Table:
    rules = [
        [(name, t) for name, t in tallies(text, genre, knowledge).items() if t and t[1]]
        for text, genre in zip(written.verse, written.genres, strict=True)
    ]
    columns = {
        "id": written.ids,
        "origin": [written.origin] * len(written.ids),
        "genre": written.genres,
        "form": [text.poem.form for text in written.verse],
        "lines": [len(text.poem.lines) for text in written.verse],
        "characters": copies.characters,
        "looks_like": looks,
        "has_loop": [has_loop(text) for text in written.texts],
        "windows": copies.windows,
        "copied_windows": copies.copied,
        "longest_copied_run": copies.longest,
        "rules": rules,
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in WRITING], schema=WRITING)
