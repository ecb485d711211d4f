"""Text forms: one written form for texts of any script, glyph tradition and punctuation.

A form is a set of steps (`FORMS`); options add steps or leave some out, and the name of the form then says
so, since results on texts of different forms are never compared. classical-1, line by line: NFC (never NFKC,
which destroys full-width punctuation), compatibility ideographs to unified ones, traditional to simplified by
OpenCC t2s, variant glyphs of the Siku quanshu to usual ones, punctuation full-width, white space and control
characters removed; empty lines dropped, lines joined by one line break. modern-1 leaves ASCII as it is, keeps
the indentation of lines that begin in ASCII (program code), and folds other white space to one space.

Many texts are normalized at once: joined by NUL, converted by one call of OpenCC, and the rest is a look-up
of code points in a numpy table. The obvious way, a dozen string operations per line, gives the same text in
4.0 times the CPU time (36,000 texts of the bundled corpus); a test compares the two.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.chinese.han_runs import HAN_RANGES

CodePoints = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_PUNCTUATION = dict(
    zip(",;:?!(｡､.「」『』﹐﹑．〔〕［］[])", "，；：？！（。、。“”‘’，、。（）（）（））", strict=True)
)
_VARIANTS = dict(
    zip(
        "厯歴隂𤣥髙黄逺巻彚徳羣竒緫兎氷黙羙絶㑹甞埀觧㡬㣲濵栁閒鬰葢㳺揺缺",
        "历历阴玄高黄远卷汇德群奇总兔冰默美绝会尝垂解几微滨柳间郁盖游摇缺",
        strict=True,
    )
)
_COMPATIBILITY = ((0xF900, 0xFB00), (0x2F00, 0x2FE0), (0x2F800, 0x2FA20))
_LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_REMOVED = re.compile(r"[\s\u3000\ufeff\u200b-\u200f\x00-\x1f]")
_CONTROLS = re.compile("[\ufeff\u200b-\u200f\x00-\x08\x0e-\x1b]")
"""Those of _REMOVED that are no white space."""

OTHER, HAN, LACUNA, PRIVATE, MARK, BREAK, END, SPACE = range(8)
"""Classes of characters in normalized text. MARK: punctuation of sentences. END: between two texts."""

STEPS = (
    "nfc",  # canonical composition
    "compatibility",  # compatibility ideographs to unified ones
    "simplified",  # traditional characters to simplified ones (OpenCC t2s)
    "variants",  # variant glyphs of the Siku quanshu to usual ones
    "punctuation",  # all punctuation full-width
    "quotes",  # punctuation full-width, but ASCII stays
    "lacuna",  # marks for lost characters to the square
    "controls",  # control and zero-width characters removed
    "white_space",  # all white space removed; without this step it is folded to one space
    "code",  # program code stays as it is: indentation, and what cleaning would take for markup (cleaning.py)
)

FORMS = {
    "classical-1": frozenset(
        ("nfc", "compatibility", "simplified", "variants", "punctuation", "controls", "white_space")
    ),
    "modern-1": frozenset(("nfc", "compatibility", "simplified", "quotes", "controls", "code")),
}
CLASSICAL = FORMS["classical-1"]
REVISIONS = {"modern-1": 3}
"""Form -> number of its present rules, where they have changed. It is in the keys of that form alone, so that
text of other forms need not be made again."""
_LOST = "□〓\ufffd"
_SQUARES = "■▇█▓◼⬛〓\ufffd"

_SEPARATOR = "\0"
_TAB = 4
"""Spaces that a tab before program code becomes."""
_REMOVE = 0x110000  # no code point: the character is taken out


@dataclass(frozen=True, kw_only=True)
class Normalized:
    """Normalized texts, and the counts that filters need."""

    texts: list[str]
    han: list[str]
    """The Han characters of each text, by which duplicates are found."""
    counts: Ints
    """Shape (texts, classes): characters of each class."""
    changed: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """Step -> which texts it changed."""

    @property
    def characters(self) -> Ints:
        """Characters of each text that are not white space: int64 (texts)."""
        return np.asarray(self.counts[:, :BREAK].sum(axis=1), dtype=np.int64)


def is_han(code: int) -> bool:
    """Whether a code point counts as a Han character (ideographs and the zero 〇)."""
    return any(low <= code < high for low, high in HAN_RANGES)


@lru_cache(maxsize=1)
def class_table() -> npt.NDArray[np.uint8]:
    """The class of every code point of normalized text."""
    table = np.full(0x110000, OTHER, dtype=np.uint8)
    for low, high in HAN_RANGES:
        table[low:high] = HAN
    for low, high in ((0xE000, 0xF900), (0xF0000, 0x110000)):
        table[low:high] = PRIVATE
    table[[ord(c) for c in _LOST]] = LACUNA
    table[[ord(c) for c in "，。、；：？！…“”‘’"]] = MARK
    table[ord("\n")], table[ord(" ")], table[0] = BREAK, SPACE, END
    return table


_BITS = {"variants": 1, "punctuation": 2, "quotes": 2, "lacuna": 4, "controls": 8, "white_space": 16}


@lru_cache(maxsize=4)
def _final_tables(steps: frozenset[str]) -> tuple[CodePoints, npt.NDArray[np.uint8]]:
    """What each code point becomes after OpenCC, and by which step.

    Returns:
        code point -> itself, another one, a line break, or _REMOVE; code point -> bit of the step in _BITS, 0
        if it stays.
    """
    table, bits = np.arange(0x110000, dtype=np.uint32), np.zeros(0x110000, dtype=np.uint8)
    for code in (*range(0x3100), *range(0xFE00, 0x10000)):
        if _REMOVED.match(chr(code)):
            step = "white_space" if chr(code).isspace() else "controls"
            table[code] = _REMOVE if step in steps else ord(" ") if step == "white_space" else code
            bits[code] = _BITS[step] if table[code] != code else 0
    table[[ord(c) for c in _LINE_BREAKS]] = ord("\n")
    bits[[ord(c) for c in _LINE_BREAKS]] = 0
    for step in sorted(steps & _FOLDED.keys()):
        for old, new in _FOLDED[step].items():
            table[ord(old)], bits[ord(old)] = ord(new), _BITS[step]
    table[0] = bits[0] = 0  # the separator; NULs in a text are replaced before joining
    return table, bits


_FOLDED = {
    "variants": _VARIANTS,
    "punctuation": _PUNCTUATION,
    "quotes": {old: new for old, new in _PUNCTUATION.items() if old in "｡､「」『』﹐﹑"},
    "lacuna": dict.fromkeys(_SQUARES, "□"),
}


@lru_cache(maxsize=1)
def _compatibility_table() -> dict[int, str]:
    codes = (c for low, high in _COMPATIBILITY for c in range(low, high))
    folded = {c: unicodedata.normalize("NFKC", chr(c)) for c in codes}
    return {c: new for c, new in folded.items() if new != chr(c)}


@lru_cache(maxsize=1)
def _has_compatibility() -> re.Pattern[str]:
    ranges = "".join(f"{chr(low)}-{chr(high - 1)}" for low, high in _COMPATIBILITY)
    return re.compile(f"[{ranges}]")


@lru_cache(maxsize=1)
def _converter() -> Any:
    import opencc  # 0.1 s and only needed when there is text

    return opencc.OpenCC("t2s")


def code_points(text: str) -> CodePoints:
    """The code points of `text`."""
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)


def _to_text(codes: CodePoints) -> str:
    return codes.tobytes().decode("utf-32-le")


def _without_controls(texts: Sequence[str], steps: frozenset[str]) -> Sequence[str]:
    """`texts` without what would hold two characters apart that NFC composes or OpenCC converts together.

    classical-1 takes such characters out afterwards, like white space: that is how it is scored.
    """
    if "controls" not in steps or "white_space" in steps:
        return texts
    return [_CONTROLS.sub("", text) if _CONTROLS.search(text) else text for text in texts]


def _composed(text: str, steps: frozenset[str]) -> str:
    """`text` in NFC, with unified ideographs for compatibility ones, and without NUL.

    Most texts are so already, and finding that out is 20 times cheaper than composing them.
    """
    if "nfc" in steps and not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    if "compatibility" in steps and _has_compatibility().search(text):
        text = text.translate(_compatibility_table())
    return text.replace(_SEPARATOR, "\x01")


def _without_empty_lines(codes: CodePoints) -> CodePoints:
    """`codes` without line breaks that begin or end a text or follow another one; it ends in a separator."""
    is_break = codes == ord("\n")
    after = np.empty_like(is_break)
    after[0], after[1:] = True, is_break[:-1] | (codes[:-1] == 0)
    codes = codes[~(is_break & after)]
    is_break = codes == ord("\n")
    return np.asarray(codes[~(is_break & np.append(codes[1:] == 0, False))])


def _without_extra_spaces(codes: CodePoints, kept: Bools) -> CodePoints:
    """`codes` with one space for each run of spaces, and without spaces at either end of a line.

    Args:
        kept: spaces that stay, whatever is beside them.
    """
    edge = (codes == ord("\n")) | (codes == 0)
    is_space = codes == ord(" ")
    after = np.append(True, (edge | is_space)[:-1])
    stays = kept | ~(is_space & after)
    codes, kept = codes[stays], kept[stays]
    edge = (codes == ord("\n")) | (codes == 0)
    return np.asarray(codes[kept | ~((codes == ord(" ")) & np.append(edge[1:], True))])


def _indentation(raw: CodePoints, codes: CodePoints) -> Bools:
    """Which characters are the indentation of program code.

    That is ASCII spaces and tabs before the first character of a line, where this is ASCII too: prose in
    Chinese is not indented for its meaning. The first line of a text has none.

    Args:
        raw: the characters before white space became spaces.
        codes: the same ones after it.
    """
    edge, blank = (codes == ord("\n")) | (codes == 0), (raw == ord(" ")) | (raw == ord("\t"))
    places = np.arange(len(codes))
    line = np.maximum.accumulate(np.where(edge, places, -1))  # the edge before each character
    seen = np.cumsum(~blank & ~edge)
    leading = blank & (line >= 0) & (seen == seen[line])
    last = len(codes) - 1
    after = np.minimum.accumulate(np.where(leading, last, places)[::-1])[::-1]  # the first one that is not
    first = codes[after]
    # a text's first line with anything on it comes after no character of that text but spaces of any kind
    text = np.maximum.accumulate(np.where(codes == 0, places, -1))
    shown = np.cumsum((codes != ord(" ")) & ~edge)
    begun = shown - np.where(text >= 0, shown[text], 0) > 0
    return np.asarray(leading & begun & (first > ord(" ")) & (first < 0x7F))


def _with_tabs_as_spaces(raw: CodePoints, codes: CodePoints, kept: Bools) -> tuple[CodePoints, Bools]:
    """`codes` with _TAB spaces for each tab of an indentation, and which of them are indentation."""
    widths = np.where(kept & (raw == ord("\t")), _TAB, 1)
    return np.repeat(codes, widths), np.repeat(kept, widths)


def normalize(texts: Sequence[str], steps: frozenset[str] = CLASSICAL) -> Normalized:
    """`texts` in a text form, classical-1 by default.

    Args:
        texts: without lone surrogates (valid UTF-8 has none).
        steps: some of STEPS.
    """
    if not texts:
        return Normalized(texts=[], han=[], counts=np.zeros((0, SPACE + 1), dtype=np.int64))
    bare = _without_controls(texts, steps)
    composed = [_composed(text, steps) for text in bare]
    joined = _SEPARATOR.join(composed) + _SEPARATOR
    converted = _converter().convert(joined) if "simplified" in steps else joined
    codes = code_points(converted)
    table, bits = _final_tables(steps)
    changed = _changes(bare, composed, converted, bits[codes], codes, steps)
    if bare is not texts:
        changed["controls"] = _differ(texts, bare)
    raw, codes = codes, table[codes]
    stays = codes != _REMOVE
    raw, codes = raw[stays], codes[stays]
    if "white_space" not in steps:
        kept = np.zeros(len(codes), dtype=np.bool_)
        if "code" in steps:
            codes, kept = _with_tabs_as_spaces(raw, codes, _indentation(raw, codes))
        codes = _without_extra_spaces(codes, kept)
    codes = _without_empty_lines(codes)
    classes = class_table()[codes]
    ends = np.flatnonzero(classes == END)
    starts = np.concatenate(([0], ends[:-1] + 1))
    counts = np.stack(
        [np.add.reduceat(classes == c, starts, dtype=np.int64) for c in range(SPACE + 1)], axis=1
    )
    return Normalized(
        texts=_to_text(codes).split(_SEPARATOR)[:-1],
        han=_han(joined, codes, classes, steps).split(_SEPARATOR)[:-1],
        counts=counts,
        changed=changed,
    )


def _changes(
    texts: Sequence[str],
    composed: list[str],
    converted: str,
    bits: npt.NDArray[np.uint8],
    codes: CodePoints,
    steps: frozenset[str],
) -> dict[str, npt.NDArray[np.bool_]]:
    """Step -> which texts it changed."""
    starts = np.concatenate(([0], np.flatnonzero(codes == 0)[:-1] + 1))
    found = np.bitwise_or.reduceat(bits, starts)
    result = {step: (found & bit) != 0 for step, bit in _BITS.items() if step in steps}
    result["composition"] = _differ(texts, composed)
    if "simplified" in steps:
        pairs = zip(composed, converted.split(_SEPARATOR), strict=False)
        result["simplified"] = np.fromiter((a != b for a, b in pairs), bool, len(texts))
    return result


def _differ(before: Sequence[str], after: Sequence[str]) -> Bools:
    """Which texts a step made again; it hands on the same object where it has nothing to do."""
    return np.fromiter((a is not b for a, b in zip(before, after, strict=True)), bool)


def _han(joined: str, codes: CodePoints, classes: npt.NDArray[np.uint8], steps: frozenset[str]) -> str:
    """The Han characters of the texts, simplified and without variant glyphs, whatever the form."""
    if not steps >= {"simplified", "variants"}:
        codes = _final_tables(CLASSICAL)[0][code_points(_converter().convert(joined))]
        codes = codes[codes != _REMOVE]
        classes = class_table()[codes]
    return _to_text(codes[(classes == HAN) | (classes == END)])


def form_steps(form: str, changes: str) -> tuple[str, frozenset[str]]:
    """The name and the steps of a text form that options change.

    Args:
        form: one of FORMS.
        changes: names of steps to add, and `no-<name>` for steps to leave out: `lacuna,no-variants`.

    Raises:
        ValueError: an unknown step, one to add that the form has, or one to leave out that it has not.
    """
    steps = FORMS[form]
    added: set[str] = set()
    taken: set[str] = set()
    for entry in filter(None, re.split(r"[,\s]+", changes)):
        name = entry.removeprefix("no-")
        if name not in STEPS or (name in steps) == (name == entry):
            raise ValueError(
                f"{entry!r}: expected one of {', '.join(sorted(set(STEPS) - steps))}, or no- and one of "
                f"{', '.join(sorted(steps))}"
            )
        (added if name == entry else taken).add(name)
    name = "".join((form, *(f"+{n}" for n in sorted(added)), *(f"-{n}" for n in sorted(taken))))
    return name, (steps | added) - taken
