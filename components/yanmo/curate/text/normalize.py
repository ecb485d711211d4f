"""Text forms: one written form for texts of any script, glyph tradition and punctuation.

A form is a set of steps (`FORMS`); options add steps or leave some out, and the name of the form then says
so, since results on texts of different forms are never compared. classical-1, line by line: NFC (never NFKC,
which destroys full-width punctuation), compatibility ideographs to unified ones, traditional to simplified by
OpenCC t2s, variant glyphs of the Siku quanshu to usual ones, punctuation full-width, white space and control
characters removed; empty lines dropped, lines joined by one line break. modern-1 leaves ASCII, quotation
marks and white space as they are, but for blanks at the ends of lines and more than two empty lines; what is
simplified or Japanese already is not converted, and radicals stand for the characters that they show.

Many texts are normalized at once: joined by NUL, and each step is a look-up of their code points in a numpy
table. The obvious way, a dozen string operations per line, gives the same text in 9 times the CPU time
(36,000 texts of the bundled corpus); a test compares the two. Only texts that hold something unusual are
looked at one by one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from yanmo.chinese.text_runs import HAN_RANGES
from yanmo.curate.text.simplified import CodePoints, code_points, simplified, to_text

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
_BLANKS = (" ", "\t", "\u3000")
"""White space within a line that means something: of words, columns, and paragraphs."""
_EMOJI = "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u23ff\u25a0-\u27bf\u2900-\u2bff\u3030\u303d\u3297\u3299"
_EMOJI += "\ufe0f\U0001f000-\U0001faff"
_TAGS = "\U000e0020-\U000e007f"
_RADICALS = dict(
    zip(
        "⺁⺂⺃⺄⺅⺆⺈⺉⺊⺋⺌⺍⺎⺏⺐⺒⺓⺔⺕⺖⺗⺘⺙⺛⺜⺝⺞⺟⺠⺡⺢⺣⺤⺥⺦⺧⺨⺩⺫⺬⺭⺮⺯⺰"
        "⺱⺲⺶⺹⺺⺻⺼⺾⺿⻀⻁⻂⻃⻄⻅⻆⻈⻉⻋⻌⻍⻎⻐⻑⻒⻓⻔⻖⻗⻘⻙⻚⻛⻜⻝⻟⻠⻢⻣⻤⻥⻦⻧⻨"
        "⻩⻪⻫⻬⻭⻮⻯⻰⻱⻲⻳",
        "厂乛乚乙亻冂刀刂卜㔾小小兀尣尢巳幺彑彐忄㣺扌攵旡日月歺母民氵氺灬爫爫丬牛犭王目示礻竹糹纟"
        "罓罒羊耂肀聿肉艹艹艹虎衤覀西见角讠贝车辶辶辶钅長镸长门阜雨青韦页风飞食飠饣马骨鬼鱼鸟卤麦"
        "黄黾斉齐歯齿竜龙龜亀龟",
        strict=True,
    )
)
"""CJK radicals (U+2E80) that stand in texts from PDF in the place of characters, by Unicode's
EquivalentUnifiedIdeograph; those of components that no text holds are left out."""

_RADICAL, _OF_RADICALS = re.compile("[\u2e80-\u2eff]"), str.maketrans(_RADICALS)
OTHER, HAN, LACUNA, PRIVATE, MARK, BREAK, END, SPACE = range(8)
"""Classes of characters in normalized text. MARK: punctuation of sentences. END: between two texts."""

STEPS = (
    "nfc",  # canonical composition
    "compatibility",  # compatibility ideographs to unified ones
    "simplified",  # traditional characters to simplified ones (OpenCC t2s)
    "variants",  # variant glyphs of the Siku quanshu to usual ones
    "punctuation",  # all punctuation full-width
    "quotes",  # corner brackets to quotation marks, half-width punctuation full-width; ASCII stays
    "lacuna",  # marks for lost characters to the square
    "controls",  # control and zero-width characters removed
    "white_space",  # all white space removed; without this step it stays
    "code",  # program code is no markup and no personal data (cleaning.py)
)

FORMS = {
    "classical-1": frozenset(
        ("nfc", "compatibility", "simplified", "variants", "punctuation", "controls", "white_space")
    ),
    "modern-1": frozenset(("nfc", "compatibility", "simplified", "controls", "code")),
}
CLASSICAL = FORMS["classical-1"]
REVISIONS = {"modern-1": 6}
"""Form -> number of its present rules, where they have changed. It is in the keys of that form alone, so that
text of other forms need not be made again."""
LOST = "□〓\ufffd"
_SQUARES = "■▇█▓◼⬛〓\ufffd"

_SEPARATOR = "\0"
_MOST_BREAKS = 3
"""Line breaks in a row: two empty lines."""
_KANA = 2
"""Letters of Japanese from which a line is in it; one の stands in many a Chinese one."""
_REMOVE = 0x110000  # no code point: the character is taken out


@dataclass(frozen=True, kw_only=True)
class Normalized:
    """Normalized texts, and the counts that filters need."""

    texts: list[str]
    counts: Ints
    """Shape (texts, classes): characters of each class."""
    changed: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """Step -> which texts it changed."""

    @cached_property
    def characters(self) -> Ints:
        """Characters of each text that are not white space: int64 (texts)."""
        return np.asarray(self.counts[:, :BREAK].sum(axis=1), dtype=np.int64)


def is_han(code: int) -> bool:
    """Return whether a code point counts as a Han character (ideographs and the zero 〇)."""
    return any(low <= code < high for low, high in HAN_RANGES)


@lru_cache(maxsize=1)
def class_table() -> npt.NDArray[np.uint8]:
    """Return the class of every code point of normalized text."""
    table = np.full(0x110000, OTHER, dtype=np.uint8)
    for low, high in HAN_RANGES:
        table[low:high] = HAN
    for low, high in ((0xE000, 0xF900), (0xF0000, 0x110000)):
        table[low:high] = PRIVATE
    table[[ord(c) for c in LOST]] = LACUNA
    table[[ord(c) for c in "，。、；：？！…“”‘’"]] = MARK
    table[[ord(c) for c in _BLANKS]] = SPACE
    table[ord("\n")], table[0] = BREAK, END
    return table


_BITS = {"variants": 1, "punctuation": 2, "quotes": 2, "lacuna": 4, "controls": 8, "white_space": 16}


@lru_cache(maxsize=4)
def _final_tables(steps: frozenset[str]) -> tuple[CodePoints, npt.NDArray[np.uint8]]:
    """Return what each code point becomes after OpenCC, and by which step.

    Returns:
        code point -> itself, another one, a line break, or _REMOVE; code point -> bit of the step in _BITS, 0
        if it stays.
    """
    table, bits = np.arange(0x110000, dtype=np.uint32), np.zeros(0x110000, dtype=np.uint8)
    for c in _REMOVED.findall("".join(map(chr, (*range(0x3100), *range(0xFE00, 0x10000))))):
        step = "white_space" if c.isspace() else "controls"
        removed = step in steps and "white_space" in steps  # else `_without_controls` has removed those
        stays = step == "controls" or c in _BLANKS
        table[ord(c)] = _REMOVE if removed else ord(c) if stays else ord(" ")
        bits[ord(c)] = _BITS[step] if table[ord(c)] != ord(c) else 0
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
def _controls() -> re.Pattern[str]:
    """Invisible characters by their category (Cf, and Cc but for white space), where they join no emoji."""
    codes = (*range(0x20000), *range(0xE0000, 0xE1000))  # none is elsewhere, where 900,000 would be asked
    every = (chr(c) for c in codes if unicodedata.category(chr(c)) in ("Cf", "Cc"))
    joining = re.compile(f"[\\s\u200d{_TAGS}]")
    alone = "".join(re.escape(c) for c in every if not joining.match(c))
    joiner = f"(?<![{_EMOJI}])\u200d|\u200d(?![{_EMOJI}])"
    return re.compile(f"[{alone}]|{joiner}|(?<![\U0001f3f4{_TAGS}])[{_TAGS}]+")


_USUAL = (
    *((0x9, 0xD), (0x20, 0x7F), (0xA0, 0xAD), (0xAE, 0x300), (0x2010, 0x2028), (0x2030, 0x205F)),
    *((0x2150, 0x2329), (0x232B, 0x2ADC), (0x3000, 0x302A), (0x3030, 0x3099), (0x309B, 0xA000)),
    *((0xE000, 0xF900), (0xFF01, 0xFFF0), (0xFFFC, 0xFFFE), (0x1F000, 0x1FB00), (0x20000, 0x2F800)),
)
"""Code points (from, to before) of texts that `_without_controls` and `_composed` leave as they are."""


@lru_cache(maxsize=1)
def _unusual() -> Bools:
    table = np.ones(0x110000, dtype=np.bool_)
    for low, high in _USUAL:
        table[low:high] = False
    table[0] = False
    return table


def _composed_all(
    texts: Sequence[str], steps: frozenset[str]
) -> tuple[CodePoints, Sequence[str], Sequence[str]]:
    """Return the texts without controls, composed: their code points, each text with a separator; the texts
    without controls; and composed too. Only those with unusual characters are looked at."""
    codes = code_points(_SEPARATOR.join([*texts, ""]))
    ends = np.flatnonzero(codes == 0)
    if len(ends) == len(texts):
        unusual = np.unique(np.searchsorted(ends, np.flatnonzero(_unusual()[codes]))).tolist()
    else:  # NULs in texts
        unusual = range(len(texts))
    bare, composed = list(texts), list(texts)
    for i in unusual:
        bare[i] = _without_controls(texts[i], steps)
        composed[i] = _composed(bare[i], steps)
    if any(composed[i] is not texts[i] for i in unusual):
        codes = code_points(_SEPARATOR.join([*composed, ""]))
    return codes, bare, composed


def _without_controls(text: str, steps: frozenset[str]) -> str:
    """`text` without what would hold two characters apart that NFC composes or OpenCC converts together.

    classical-1 takes such characters out afterwards, like white space: that is how it is scored.
    """
    if "controls" not in steps or "white_space" in steps or not _controls().search(text):
        return text
    return _controls().sub("", text)


def _composed(text: str, steps: frozenset[str]) -> str:
    """`text` in NFC, with unified ideographs for compatibility ones, and without NUL."""
    if "nfc" in steps and not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    if "compatibility" in steps and _has_compatibility().search(text):
        text = text.translate(_compatibility_table())
    if "compatibility" in steps and "white_space" not in steps and _RADICAL.search(text):
        text = text.translate(_OF_RADICALS)
    return text.replace(_SEPARATOR, "\x01").replace("\r\n", "\n")


def _without_empty_lines(codes: CodePoints) -> CodePoints:
    """`codes` without line breaks that begin or end a text or follow another one; it ends in a separator."""
    is_break = codes == ord("\n")
    after = np.empty_like(is_break)
    after[0], after[1:] = True, is_break[:-1] | (codes[:-1] == 0)
    codes = codes[~(is_break & after)]
    is_break = codes == ord("\n")
    return np.asarray(codes[~(is_break & np.append(codes[1:] == 0, False))])


def _without_loose_ends(codes: CodePoints) -> CodePoints:
    """`codes` without blanks that end a line, more than two empty lines, and any at the ends of a text."""
    blanks = np.flatnonzero(np.isin(codes, [ord(c) for c in _BLANKS]))
    _, last = _runs(blanks)
    codes = np.delete(codes, blanks[np.isin(codes[last + 1], [ord("\n"), 0])])
    breaks = np.flatnonzero(codes == ord("\n"))
    first, last = _runs(breaks)  # the first text follows on codes[-1], a separator
    loose = (codes[first - 1] == 0) | (codes[last + 1] == 0) | (breaks - first >= _MOST_BREAKS)
    return np.delete(codes, breaks[loose])


def _runs(places: Ints) -> tuple[Ints, Ints]:
    """Return of each of some rising places the first and the last of those that it stands in a row with."""
    starts = np.flatnonzero(np.diff(places, prepend=-2) > 1)
    sizes = np.diff(starts, append=len(places))
    return np.repeat(places[starts], sizes), np.repeat(places[starts] + sizes - 1, sizes)


@lru_cache(maxsize=1)
def _writing_tables() -> tuple[Bools, npt.NDArray[np.int8]]:
    """Code point -> whether GB 2312 has it; 1 where only that has it, -1 where only Big5 has it."""
    has, every = {}, np.arange(0x4E00, 0xA000, dtype=np.uint32)
    for name in ("gb2312", "big5"):
        has[name] = np.zeros(0x110000, dtype=np.bool_)
        read_again = to_text(every).encode(name, "replace").decode(name)
        has[name][every] = code_points(read_again) == every
    return has["gb2312"], has["gb2312"].astype(np.int8) - has["big5"].astype(np.int8)


def _modern(before: CodePoints, after: CodePoints) -> CodePoints:
    """Texts as OpenCC converts them, where they are traditional.

    A text that is simplified keeps the characters that are simplified Chinese too (`覆盖`, `乾`, `藉口`), as
    only their use tells; a line in Japanese stays whole.
    """
    changed = np.flatnonzero(before != after)
    if not len(changed):
        return before
    usable, writing = _writing_tables()
    ends, lines = np.flatnonzero(before == 0), np.flatnonzero((before == ord("\n")) | (before == 0))
    starts = np.append(0, ends[:-1] + 1)
    is_simplified = np.add.reduceat(writing[before], starts, dtype=np.int64) > 0
    stays = usable[before[changed]] & is_simplified[np.searchsorted(ends, changed)]
    kana = np.searchsorted(lines, np.flatnonzero((before >= 0x3041) & (before < 0x30FB)))
    stays |= (np.bincount(kana, minlength=len(lines)) >= _KANA)[np.searchsorted(lines, changed)]
    stays |= after[changed] >= 0x20000  # 餸 to 𩠌: a form that nobody prints
    after[changed[stays]] = before[changed[stays]]
    return after


def normalize(texts: Sequence[str], steps: frozenset[str] = CLASSICAL) -> Normalized:
    """`texts` in a text form, classical-1 by default.

    Args:
        texts: without lone surrogates (valid UTF-8 has none).
        steps: some of STEPS.
    """
    if not texts:
        return Normalized(texts=[], counts=np.zeros((0, SPACE + 1), dtype=np.int64))
    before, bare, composed = _composed_all(texts, steps)
    codes = simplified(before) if "simplified" in steps else before
    if "simplified" in steps and "white_space" not in steps:
        codes = _modern(before, codes)
    table, bits = _final_tables(steps)
    changed = _changes(bare, composed, before, codes, bits[codes], steps)
    if "controls" in steps and "white_space" not in steps:
        changed["controls"] = _differ(texts, bare)
    codes = table[codes]
    codes = codes[codes != _REMOVE]
    codes = _without_empty_lines(codes) if "white_space" in steps else _without_loose_ends(codes)
    classes = class_table()[codes]
    ends, others = np.flatnonzero(classes == END), np.flatnonzero(classes != HAN)  # a sixth of all
    cells = np.searchsorted(ends, others) * (SPACE + 1) + classes[others]
    counts = np.bincount(cells, minlength=len(texts) * (SPACE + 1)).reshape(-1, SPACE + 1)
    counts[:, HAN] = np.diff(ends, prepend=-1) - counts.sum(axis=1)
    return Normalized(texts=to_text(codes).split(_SEPARATOR)[:-1], counts=counts, changed=changed)


def _changes(
    texts: Sequence[str],
    composed: Sequence[str],
    before: CodePoints,
    codes: CodePoints,
    bits: npt.NDArray[np.uint8],
    steps: frozenset[str],
) -> dict[str, npt.NDArray[np.bool_]]:
    """Step -> which texts it changed."""
    starts = np.concatenate(([0], np.flatnonzero(codes == 0)[:-1] + 1))
    found = np.bitwise_or.reduceat(bits, starts)
    result = {step: (found & bit) != 0 for step, bit in _BITS.items() if step in steps}
    result["composition"] = _differ(texts, composed)
    if "simplified" in steps:
        result["simplified"] = np.logical_or.reduceat(before != codes, starts)
    return result


def _differ(before: Sequence[str], after: Sequence[str]) -> Bools:
    """Return which texts a step made again; it hands on the same object where it has nothing to do."""
    return np.fromiter((a is not b for a, b in zip(before, after, strict=True)), bool)


def form_steps(form: str, changes: str) -> tuple[str, frozenset[str]]:
    """Return the name and the steps of a text form that options change.

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
