"""Cleaning before normalization, and the filters after it; each has a name, a threshold and a count.

Only what is wrong in any genre is filtered here. Web filters (stop words, line-end punctuation) would throw
verse and unpunctuated prose away, so there are none.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from yanmo.curate.normalize import HAN, LACUNA, PRIVATE, Normalized

GETA = "〓"
"""The mark for a character that has no code point; stands in for private-use ones."""

# Every repetition is bounded: a text of nothing but "<!--" would otherwise take minutes.
_TAG = re.compile(r"<(?:/?[A-Za-z][^<>]{0,300}|!--.{0,1000}?--)>", re.DOTALL)
_LINE_TAG = re.compile(r"<\s*(?:br|/?p|/?div|/?li|/?tr|/?h[1-6])\b[^<>]{0,300}>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:[A-Za-z]{2,31}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_PRIVATE_USE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010fffd]")
_MARKUP_LEFT = re.compile(r"</?[A-Za-z]|&[A-Za-z]{2,31};|&#")
_STUB = re.compile(r"[（(](?:以[上下])?(?:表格?|图表?)略[）)]")
_LOST = re.compile(r"(?<=[\u3400-\u9fff])\?(?=[\u3400-\u9fff?])|(?<=\?)\?")

REASONS = ("markup", "stub", "too_short", "not_han", "private_use", "lacuna", "too_long")
"""Why a filter drops a document; the first that holds is counted."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Thresholds of the filters: characters, and shares of a document's characters."""

    min_han_characters: int
    max_characters: int
    min_han_share: float
    max_lacuna_share: float
    max_private_use_share: float


@dataclass(slots=True)
class Cleaned:
    """A text ready to be normalized, with what only the raw text could tell."""

    text: str
    changes: tuple[str, ...] = ()
    """What was cleaned: markup, private_use."""
    private_use: int = 0
    lost: int = 0
    """Question marks that stand for a lost character."""
    has_markup: bool = False
    is_stub: bool = False


def clean(text: str) -> Cleaned:
    """`text` without HTML and private-use characters; nearly all texts need nothing."""
    result = Cleaned(text)
    if "<" in text or "&" in text:
        result.text = _without_markup(text)
        result.has_markup = _MARKUP_LEFT.search(result.text) is not None
        if result.text != text:
            result.changes += ("markup",)
    if _PRIVATE_USE.search(text):
        result.text, result.private_use = _PRIVATE_USE.subn(GETA, result.text)
        result.changes += ("private_use",)
    if "?" in text:
        result.lost = len(_LOST.findall(text))
    if "略" in text:
        result.is_stub = _STUB.search(text) is not None
    return result


def _without_markup(text: str) -> str:
    """Tags that break lines become line breaks, others vanish; entities become characters."""
    text = _TAG.sub("", _LINE_TAG.sub("\n", text))
    return _ENTITY.sub(lambda found: html.unescape(found[0]), text)


def judge(cleaned: Sequence[Cleaned], normalized: Normalized, limits: Limits) -> npt.NDArray[np.int8]:
    """Which filter drops each document: an index into REASONS, or -1 for none."""
    if not cleaned:
        return np.zeros(0, dtype=np.int8)
    characters = normalized.characters
    whole = np.maximum(characters, 1)
    han = normalized.counts[:, HAN]
    private_use = np.array([c.private_use for c in cleaned])
    lost = np.array([c.lost for c in cleaned])
    tests = {
        "markup": np.array([c.has_markup for c in cleaned]),
        "stub": np.array([c.is_stub for c in cleaned]),
        "too_short": (han < limits.min_han_characters) | (characters == 0),
        "not_han": han < limits.min_han_share * whole,
        "private_use": private_use + normalized.counts[:, PRIVATE] > limits.max_private_use_share * whole,
        "lacuna": normalized.counts[:, LACUNA] + lost > limits.max_lacuna_share * whole,
        "too_long": characters > limits.max_characters,
    }
    failed = np.stack([tests[reason] for reason in REASONS])
    return np.where(failed.any(axis=0), failed.argmax(axis=0), -1).astype(np.int8)
