"""Small tasks made from the evaluation set itself: restore punctuation, name the genre, find the next line.

They depend on seed and document alone, so that two models get the same ones. A chat model is asked in words
and its answers are read strictly.

Intervals draw whole groups of documents (`groups_of`), as those of the bits do.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yanmo.common.bootstrap import Floats, generator_for, interval, resampled_sums, sums_of_groups
from yanmo.evaluate.documents.reading import Document, first_of_each_genre, genre_order

LETTERS = "ABCD"
_LONGEST = 96
"""Characters of a text that a task shows, in whole lines where it can."""
_DRAWS = 2000


@dataclass(frozen=True)
class Task:
    """One question."""

    kind: str
    """punctuation, genre, next_line or chat."""
    text: str
    """What is shown: a text without marks, a text, or the line before."""
    answer: str
    choices: tuple[str, ...] = ()
    group: str = ""
    """Genre and name of its document's group (`groups_of`); empty if it has none."""


def make_tasks(documents: Sequence[Document], per_genre: int, seed: int) -> list[Task]:
    """Tasks from the first `per_genre` plain documents of each genre, sorted by kind."""
    plain = [d for d in documents if not d.turns]
    chosen = first_of_each_genre(plain, per_genre)
    genres = tuple(sorted({d.genre for d in plain}, key=genre_order))
    lines = {g: sorted({line for d in plain if d.genre == g for line in _lines(d)}) for g in genres}
    found = [
        Task("punctuation", without_marks(begun(d.text)), begun(d.text), group=_group(d)) for d in chosen
    ]
    if len(genres) > 1:
        found += [Task("genre", begun(d.text), d.genre, genres, _group(d)) for d in chosen]
    return found + [task for d in chosen if (task := _next_line(d, lines[d.genre], seed))]


def _group(document: Document) -> str:
    return f"{document.genre} {document.group}" if document.group else ""


def _lines(document: Document) -> list[str]:
    return [line for line in document.text.split("\n") if line.strip()]


def begun(text: str) -> str:
    """The beginning of a text: whole lines up to 96 characters, or as many characters of the first."""
    kept = ""
    for line in text.split("\n"):
        longer = f"{kept}\n{line}" if kept else line
        if len(longer) > _LONGEST:
            break
        kept = longer
    return kept or text[:_LONGEST]


def _next_line(document: Document, others: Sequence[str], seed: int) -> Task | None:
    """Return the task which of four lines of one genre and length comes next; None where too few are."""
    own, draw = _lines(document), generator_for(seed, document.id)
    if len(own) < 2:
        return None
    at = int(draw.integers(1, len(own)))
    strange = sorted(
        (line for line in others if line not in own), key=lambda line: abs(len(line) - len(own[at]))
    )[:32]
    if len(strange) < 3:
        return None
    wrong = [strange[i] for i in draw.choice(len(strange), 3, replace=False)]
    choices = [*wrong, own[at]]
    order = draw.permutation(4)
    return Task("next_line", own[at - 1], own[at], tuple(choices[i] for i in order), _group(document))


def is_mark(character: str) -> bool:
    """Return whether a character is punctuation."""
    return unicodedata.category(character).startswith("P")


def without_marks(text: str) -> str:
    """A text without punctuation and line breaks."""
    return "".join(c for c in text if not is_mark(c) and not c.isspace())


def marks_of(text: str, shown: str) -> set[tuple[int, str]]:
    """The marks of a text and how many characters of `shown` are before each.

    They count as long as the text repeats what was shown; what follows another character is not restored.
    """
    found, before = set(), 0
    for character in text:
        if is_mark(character):
            found.add((before, character))
        elif not character.isspace():
            if before >= len(shown) or character != shown[before]:
                break
            before += 1
    return found


def punctuation_metrics(tasks: Sequence[Task], answers: Sequence[str]) -> dict[str, Any]:
    """Precision, recall and F1 of restored marks, and how many answers kept every other character."""
    hits = np.zeros((len(tasks), 3))
    kept = 0
    for row, task, answer in zip(hits, tasks, answers, strict=True):
        wanted, got = marks_of(task.answer, task.text), marks_of(answer, task.text)
        row[:] = len(wanted & got), len(got), len(wanted)
        kept += without_marks(answer) == task.text
    right, given, wanted_marks = hits.sum(0)
    sums = _drawn(hits, tasks, "punctuation")
    drawn = 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1)
    return {
        "of": len(tasks),
        "precision": _share(right, given),
        "recall": _share(right, wanted_marks),
        "f1": _share(2 * right, given + wanted_marks),
        "interval": [round(v, 4) for v in interval(drawn)],
        "obedient": _share(kept, len(tasks)),
    }


def choice_metrics(tasks: Sequence[Task], chosen: Sequence[str | None]) -> dict[str, Any]:
    """Accuracy with its interval, and chance; None is an answer that names no choice."""
    right = np.array([[c == t.answer] for t, c in zip(tasks, chosen, strict=True)], np.float64)
    sums = _drawn(np.column_stack([right, np.ones(len(tasks))]), tasks, "choice")
    drawn = sums[:, 0] / sums[:, 1]
    return {
        "of": len(tasks),
        "accuracy": _share(right.sum(), len(tasks)),
        "interval": [round(v, 4) for v in interval(drawn)],
        "chance": round(float(np.mean([1 / len(t.choices) for t in tasks])), 4),
        "obedient": _share(sum(c is not None for c in chosen), len(tasks)),
    }


def _drawn(values: Floats, tasks: Sequence[Task], name: str) -> Floats:
    """Sums over tasks drawn again, those of one group together."""
    group = [task.group or f"alone {i}" for i, task in enumerate(tasks)]
    return resampled_sums(sums_of_groups(values, np.array(group)), _DRAWS, generator_for(0, name))


def _share(part: float, of: float) -> float | None:
    return round(float(part) / float(of), 4) if of else None


def chrf(pairs: Sequence[tuple[str, str]], order: int = 6, beta: float = 2.0) -> float:
    """chrF of (answer, reference) pairs, 0 to 100: mean precision and recall of character n-grams.

    Popovic 2015, with the conventions of sacrebleu 2.6 (white space left out, counts summed over the corpus);
    a test holds its results. Own code: sacrebleu brings four packages for these lines.
    """
    precisions, recalls = [], []
    for n in range(1, order + 1):
        counts = [(_ngrams(a, n), _ngrams(r, n)) for a, r in pairs]
        given = sum(a.total() for a, r in counts if r)
        wanted = sum(r.total() for _, r in counts)
        if given and wanted:
            both = sum((a & r).total() for a, r in counts)
            precisions.append(both / given)
            recalls.append(both / wanted)
    p, r = (float(np.mean(each)) if each else 0.0 for each in (precisions, recalls))
    return 100 * (1 + beta**2) * p * r / (beta**2 * p + r) if p + r else 0.0


def _ngrams(text: str, n: int) -> Counter[str]:
    text = "".join(text.split())
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))
