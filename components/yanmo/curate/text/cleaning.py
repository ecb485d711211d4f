"""Cleaning and normalization: here the steps that need the raw text, in normalize.py the others.

Garbled text is repaired, markup removed, private-use characters replaced, boilerplate of web pages cut,
personal data masked. Options switch each step on or off, and documents that a step changed are counted."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.curate.sources.chat_layouts import Turn
from yanmo.curate.sources.parsing import RawDocument
from yanmo.curate.text.boilerplate import without_boilerplate
from yanmo.curate.text.common_characters import ASCII, COMMON_HAN, OTHER_SCRIPT, RARE, class_table
from yanmo.curate.text.markup import has_markup, without_markup
from yanmo.curate.text.mojibake import SUSPECT_SHARE, has_typical_marks, repair
from yanmo.curate.text.normalize import BREAK, END, Normalized, normalize
from yanmo.curate.text.privacy import KINDS, mask
from yanmo.curate.text.simplified import code_points

GETA = "〓"
"""The mark for a character that has no code point; it replaces private-use characters."""

CLEANINGS = ("mojibake", "markup", "private_use", "boilerplate")
DEFAULT_CLEANINGS = frozenset(("mojibake", "markup", "private_use"))

# Every repetition is bounded: a text of nothing but "<!--" would otherwise take minutes.
# A name that Han characters follow is none: `若a<b且c>d`.
_TAG = re.compile(
    r"<(?:/?[A-Za-z][A-Za-z0-9:-]{0,30}+(?![\u3400-\u9fff])[^<>]{0,300}|!--.{0,1000}?--)>", re.DOTALL
)
_LINE_TAG = re.compile(r"<\s*(?:br|/?p|/?div|/?li|/?tr|/?h[1-6])\b[^<>]{0,300}>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:[A-Za-z]{2,31}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_PRIVATE_USE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010fffd]")
_MARKUP_LEFT = re.compile(r"</?[A-Za-z]|&[A-Za-z]{2,31};|&#")
_STUB = re.compile(r"[（(](?:以[上下])?(?:表格?|图表?)略[）)]")
_LOST = re.compile(r"(?<=[\u3400-\u9fff])\?(?=[\u3400-\u9fff?])|(?<=\?)\?")

_GARBLED_SHARE = 0.2
_FEW_HAN = 10
_LATIN_SHARE = 0.3
_FEW_OTHERS = 4
_FOR_A_REMARK = 1000
"""Characters of modern text that outweigh one remark such as (table omitted)."""


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """How raw text is cleaned."""

    steps: frozenset[str] = DEFAULT_CLEANINGS
    """Some of CLEANINGS."""
    personal: tuple[str, ...] = KINDS
    """Kinds of personal data that are masked."""
    squares: bool = False
    """Whether question marks for lost characters become squares (the step `lacuna`)."""
    code: bool = False
    """Whether texts hold program code (the step `code`): then only elements of HTML are markup, and question
    marks between Han characters are what they seem."""


@dataclass(slots=True)
class Cleaned:
    """A cleaned text, and what filters must know that normalization would hide."""

    text: str
    changes: tuple[str, ...] = ()
    """Steps that changed the text: of CLEANINGS, and `personal_<kind>`."""
    private_use: int = 0
    """Private-use characters that were replaced."""
    lost: int = 0
    """Question marks that stand for a lost character."""
    has_markup: bool = False
    is_stub: bool = False
    is_garbled: bool = False


_MARKUP, _PRIVATE, _PERSONAL, _QUESTION, _OMITTED = 8, 16, 32, 64, 128
"""Bits in the table of characters: what a character may be part of; the first three bits are classes."""


@lru_cache(maxsize=1)
def _bit_table() -> npt.NDArray[np.uint8]:
    table = np.where(class_table() == ASCII, 0, 1 << class_table()).astype(np.uint8)
    assert OTHER_SCRIPT == 3 and RARE == 0 and COMMON_HAN == 1
    table[table == 1 << OTHER_SCRIPT] = 4
    table[0xE000:0xF900] |= _PRIVATE
    table[0xF0000:] |= _PRIVATE
    for characters, bit in (("<&", _MARKUP), ("@＠0123456789０１２３４５６７８９", _PERSONAL)):
        table[[ord(c) for c in characters]] |= bit
    table[ord("?")] |= _QUESTION
    table[ord("略")] |= _OMITTED
    return table


def clean_all(texts: Sequence[str], how: Cleaning) -> list[Cleaned]:
    """Return the texts, cleaned: all characters are looked up at once, few texts need more."""
    if not texts:
        return []
    codes = code_points("\0".join([*texts, ""]))
    if np.count_nonzero(codes == 0) > len(texts):
        codes = code_points("\0".join(text.replace("\0", " ") for text in texts) + "\0")
    bits = _bit_table()[codes]
    starts = np.concatenate(([0], np.flatnonzero(codes == 0)[:-1] + 1))
    held = np.bitwise_or.reduceat(bits, starts)
    suspect = _suspects(bits, starts) if "mojibake" in how.steps else np.zeros(len(texts), dtype=np.bool_)
    wanted = _MARKUP | _PRIVATE | _QUESTION | _OMITTED | (_PERSONAL if how.personal else 0)
    look = suspect | ((held & wanted) != 0) | ("boilerplate" in how.steps)
    return [
        clean(text, how, is_suspect=s) if needed else Cleaned(text)
        for text, needed, s in zip(texts, look.tolist(), suspect.tolist(), strict=True)
    ]


def _suspects(bits: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Texts that may be garbled: few common Han characters, or some that are neither Han nor ASCII."""
    rare, common, other = (np.add.reduceat((bits & b) != 0, starts, dtype=np.int64) for b in (1, 2, 4))
    known = common + rare + other
    return (other >= _FEW_OTHERS) | ((known > 0) & (common < SUSPECT_SHARE * known))


def clean(text: str, how: Cleaning = Cleaning(), *, is_suspect: bool = True) -> Cleaned:
    """Clean one text.

    Args:
        is_suspect: whether it may be garbled; finding out for certain is costly.
    """
    result = Cleaned(text)
    if "mojibake" in how.steps and is_suspect:
        _changed(result, "mojibake", repair(text))
        result.is_garbled = is_garbled(result.text)
    if "markup" in how.steps and ("<" in result.text or "&" in result.text):
        if how.code:  # what it explains of HTML is no markup: it is looked at before entities are decoded
            _changed(result, "markup", without_markup(result.text))
            result.has_markup = has_markup(text) and has_markup(result.text)
        else:
            _changed(result, "markup", _without_markup(result.text))
            result.has_markup = _MARKUP_LEFT.search(result.text) is not None
    if "private_use" in how.steps and _PRIVATE_USE.search(result.text):
        fixed, result.private_use = _PRIVATE_USE.subn(GETA, result.text)
        _changed(result, "private_use", fixed)
    if "boilerplate" in how.steps:
        _changed(result, "boilerplate", without_boilerplate(result.text))
    if how.personal:
        masked, kinds = mask(result.text, how.personal, code=how.code)
        result.text, result.changes = masked, (*result.changes, *(f"personal_{kind}" for kind in kinds))
    if "?" in result.text and (how.squares or not how.code):
        result.lost = len(_LOST.findall(result.text))
        if how.squares:
            result.text, result.lost = _LOST.sub("□", result.text), 0
    if "略" in result.text:
        remarks = len(_STUB.findall(result.text))
        # A long page is more than the table that one remark leaves out; a poem with one is not whole.
        result.is_stub = remarks * _FOR_A_REMARK > len(result.text) if how.code else remarks > 0
    return result


def _changed(result: Cleaned, step: str, text: str) -> None:
    if text != result.text:
        result.text, result.changes = text, (*result.changes, step)


def _without_markup(text: str) -> str:
    """`text` without markup: tags that end lines become line breaks, others go; entities are decoded."""
    text = _TAG.sub("", _LINE_TAG.sub("\n", text))
    return _ENTITY.sub(lambda found: html.unescape(found[0]), text)


def is_garbled(text: str) -> bool:
    """Return whether `text` was read in a wrong encoding: rare Han characters only, or Latin ones."""
    codes = code_points(text)
    counts = np.bincount(class_table()[codes], minlength=OTHER_SCRIPT + 1)
    han = counts[RARE] + counts[COMMON_HAN]
    latin = int(((codes >= 0x80) & (codes < 0x100)).sum())
    return bool(
        (han >= _FEW_HAN and counts[COMMON_HAN] < _GARBLED_SHARE * han)
        or latin > _LATIN_SHARE * len(codes)
        or has_typical_marks(text)
    )


def clean_and_normalize(
    documents: Sequence[RawDocument], how: Cleaning, steps: frozenset[str]
) -> tuple[list[Cleaned], Normalized]:
    """Clean and normalize all texts, and each turn of a chat by itself, so that no step crosses two turns.

    A chat's text is its turns, joined by line breaks: to filters and splits it is like any other.
    A chat in which nothing is left of a turn becomes an empty text, which every set of filters drops.
    """
    texts = [[t.text for t in d.turns] if d.turns else [d.text] for d in documents]
    parts = list(itertools.chain.from_iterable(texts))
    cleaned = clean_all(parts, how)
    normalized = normalize([c.text for c in cleaned], steps)
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
    """Return the columns `turns` and `loss_spans` of documents with normalized turns; null for others."""
    spans: list[Any] = []
    turns: list[Any] = []
    for document in documents:
        places = [(turn, *place) for turn, place in zip(document.turns, _placed(document.turns), strict=True)]
        spans.append([[begin, end] for turn, begin, end in places if turn.is_answer] if places else None)
        turns.append([{"role": t.role, "begin": begin, "end": end} for t, begin, end in places] or None)
    return {"loss_spans": spans, "turns": turns}


def _placed(turns: Sequence[Turn]) -> list[tuple[int, int]]:
    """Yield where each turn begins and ends in the document's text, in characters."""
    ends = list(itertools.accumulate(len(turn.text) + 1 for turn in turns))
    return [(end - 1 - len(turn.text), end - 1) for turn, end in zip(turns, ends, strict=True)]
