"""Cleans and normalizes texts, also those of chats: their turns become the one text of a document.

Each turn is cleaned and normalized by itself; the document's text is its turns, joined by line breaks.
`turns` says where each begins and ends, and `loss_spans` which ones are answers. So to filters,
deduplication, splits and take-down a chat is a document like any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from yanmo.curate.sources.chat_layouts import Turn
from yanmo.curate.sources.parsing import RawDocument
from yanmo.curate.text.cleaning import Cleaned, clean_all
from yanmo.curate.text.normalize import BREAK, END, Normalized, normalize
from yanmo.curate.text.record_rules import RecordRules


def clean_and_normalize(
    documents: Sequence[RawDocument], rules: RecordRules
) -> tuple[list[Cleaned], Normalized]:
    """Clean and normalize all texts, and each turn of a chat by itself, so that no step crosses two turns.

    A chat in which nothing is left of a turn becomes an empty text, which every set of filters drops.
    """
    texts = [[t.text for t in d.turns] if d.turns else [d.text] for d in documents]
    parts = list(itertools.chain.from_iterable(texts))
    cleaned = clean_all(parts, rules.cleaning)
    normalized = normalize([c.text for c in cleaned], rules.steps)
    if len(parts) == len(documents) and not any(d.turns for d in documents):
        return cleaned, normalized
    ends = list(itertools.accumulate(map(len, texts)))
    bounds = list(zip([0, *ends[:-1]], ends, strict=True))
    for document, (begin, end) in zip(documents, bounds, strict=True):
        if document.turns:
            normalized_turns = zip(document.turns, normalized.texts[begin:end], strict=True)
            document.turns = [turn._replace(text=text) for turn, text in normalized_turns]
    return [_joined(cleaned[a:b]) for a, b in bounds], _join_normalized(normalized, bounds)


def _joined(parts: Sequence[Cleaned]) -> Cleaned:
    if len(parts) == 1:
        return parts[0]
    return Cleaned(
        text="\n".join(p.text for p in parts),
        changes=tuple(dict.fromkeys(change for p in parts for change in p.changes)),
        private_use=sum(p.private_use for p in parts),
        lost=sum(p.lost for p in parts),
        has_markup=any(p.has_markup for p in parts),
        is_stub=any(p.is_stub for p in parts),
        is_garbled=any(p.is_garbled for p in parts),
    )


def _join_normalized(normalized: Normalized, bounds: Sequence[tuple[int, int]]) -> Normalized:
    texts, starts = [], [begin for begin, _ in bounds]
    counts = np.add.reduceat(normalized.counts, starts, axis=0)
    for i, (begin, end) in enumerate(bounds):
        whole = all(normalized.texts[begin:end])
        texts.append("\n".join(normalized.texts[begin:end]) if whole else "")
        counts[i, BREAK] += end - begin - 1
        counts[i, END] -= end - begin - 1
        if not whole:
            counts[i] = 0
    changed = {step: np.logical_or.reduceat(which, starts) for step, which in normalized.changed.items()}
    return replace(normalized, texts=texts, counts=counts, changed=changed)


def columns_of(documents: Sequence[RawDocument]) -> dict[str, list[Any]]:
    """The columns `turns` and `loss_spans` of documents whose turns are normalized; null for other texts."""
    spans: list[Any] = []
    turns: list[Any] = []
    for document in documents:
        places = [(turn, *place) for turn, place in zip(document.turns, _placed(document.turns), strict=True)]
        spans.append([[begin, end] for turn, begin, end in places if turn.is_answer] if places else None)
        turns.append([{"role": t.role, "begin": begin, "end": end} for t, begin, end in places] or None)
    return {"loss_spans": spans, "turns": turns}


def _placed(turns: Sequence[Turn]) -> list[tuple[int, int]]:
    """Where each turn begins and ends in the document's text, in characters."""
    ends = list(itertools.accumulate(len(turn.text) + 1 for turn in turns))
    return [(end - 1 - len(turn.text), end - 1) for turn, end in zip(turns, ends, strict=True)]
