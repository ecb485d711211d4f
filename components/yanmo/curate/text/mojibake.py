"""Garbled text: Chinese that was read in a wrong encoding, recognised and undone where nothing was lost.

A repair is accepted only if it can be proved: the wrong reading is undone by encoding the text back, byte
for byte (`strict`), the bytes decode in the right encoding without an error, doing the wrong thing again
gives the garbled text exactly, and the result is made of common characters where the garbled text was not.
Where a character was already replaced by U+FFFD or `?` no such proof exists; the text stays and the filter
`garbled` drops it.

Alternative not taken: ftfy, which undoes Latin-1 and cp1252 readings of UTF-8 but none of the East Asian
ones."""

from __future__ import annotations

import re

from yanmo.curate.text.common_characters import COMMON, common_share

_MISREAD = (
    # (read as, really)
    ("cp1252", "utf-8"), ("gb18030", "utf-8"), ("big5", "utf-8"), ("cp1252", "gb18030"), ("cp1252", "big5"),
    ("gb18030", "big5"), ("big5", "gb18030"),
)  # fmt: skip
_RUNS = re.compile(
    "[\x80-\xff\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]{4,}"
)
"""Characters that Latin-1 or cp1252 make of bytes above 127."""
_TYPICAL = re.compile("锟斤拷|烫烫烫|屯屯屯|锘锘")
"""What lost characters and uninitialised memory look like in GBK."""

SUSPECT_SHARE = 0.3
"""Text with a smaller share of common characters is looked at: 241 of the 448,434 texts of the reference
corpora, nearly all of them lost characters (squares); none of those is changed."""
_GOOD_SHARE = 0.5
_MIN_GAIN = 0.3
_ODD_SHARE = 0.25
_FEW = 4
_LONG_LINE = 12

# cp1252 leaves five bytes undefined; programs that misread text pass them through as C1 controls.
_TO_BYTES = {
    ord(bytes([b]).decode("cp1252")): b for b in range(256) if b not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}
_TO_BYTES |= {b: b for b in range(256)}


def repair(text: str) -> str:
    """`text` with wrong readings undone where that is lossless, or `text` itself.

    Line by line, as texts are often glued together from several files: a line that is better as it is stays.
    """
    lines = text.split("\n")
    best: tuple[int, dict[int, str]] = 0, {}
    for wrong, right in _MISREAD:
        proved = _proved_lines(lines, wrong, right)
        gain = sum(map(_common, proved.values()))
        if gain > best[0]:
            best = gain, proved
    return "\n".join(best[1].get(i) or _repair_runs(line) for i, line in enumerate(lines))


def _proved_lines(lines: list[str], wrong: str, right: str) -> dict[int, str]:
    """The lines that were read as `wrong` for certain, read as `right`.

    Either the text as a whole makes sense only when it is repaired, or a line of some length does. Short
    lines alone prove nothing: of a thousand headings in a book some would make a sort of sense.
    """
    better = _better_lines(lines, wrong, right)
    whole = [better.get(i, line) for i, line in enumerate(lines)]
    if better and _is_proved("".join(lines), "".join(whole), wrong):
        return better
    return {
        i: line
        for i, line in better.items()
        if len(lines[i]) >= _LONG_LINE and _is_proved(lines[i], line, wrong)
    }


def _better_lines(lines: list[str], wrong: str, right: str) -> dict[int, str]:
    """The lines that make more sense when they are read as `right`."""
    result = {}
    for i, line in enumerate(lines):
        found = None if line.isascii() else _undo(line, wrong, right)
        if found and wrong == "cp1252" and not common_share(found):  # misread twice
            found = _undo(found, wrong, right)
        if found and found != line and common_share(found) > common_share(line):
            result[i] = found
    return result


def _is_proved(garbled: str, fixed: str, wrong: str) -> bool:
    """Whether one text is garbled for certain and the other is not."""
    share = common_share(fixed)
    if _common(fixed) < _FEW or share < _GOOD_SHARE or share - common_share(garbled) < _MIN_GAIN:
        return False
    known = [c for c in garbled if not c.isascii()]
    if wrong == "cp1252":  # not a sentence with an accent or two
        return len(known) >= 0.4 * len(garbled)
    # Russian or Japanese text is in these encodings too, without their rare and private-use characters.
    odd = sum(_is_odd(c) for c in known)
    return odd >= _ODD_SHARE * len(known)


def _is_odd(c: str) -> bool:
    return "\ue000" <= c <= "\uf8ff" or ("\u3400" <= c <= "\u9fff" and c not in COMMON)


def _common(text: str) -> int:
    return sum(c in COMMON for c in text)


def _repair_runs(line: str) -> str:
    """Repair Latin runs inside a line that is Chinese otherwise."""

    def fixed(match: re.Match[str]) -> str:
        found = _undo(match[0], "cp1252", "utf-8")
        return found if found and common_share(found) >= _GOOD_SHARE else match[0]

    return line if line.isascii() else _RUNS.sub(fixed, line)


def _undo(text: str, wrong: str, right: str) -> str | None:
    """`text`, which was read as `wrong`, read as `right`; None where that is not lossless."""
    try:
        data = _encode(text, wrong)
        found = data.decode(right)
        is_lossless = found.encode(right) == data and text in _readings(data, wrong)
    except (UnicodeError, KeyError):
        return None
    return found if is_lossless else None


def _encode(text: str, encoding: str) -> bytes:
    if encoding == "cp1252":
        return bytes(_TO_BYTES[ord(c)] for c in text)
    return text.encode(encoding)


def _readings(data: bytes, wrong: str) -> tuple[str, ...]:
    """What programs that read `data` as `wrong` show."""
    if wrong != "cp1252":
        return (data.decode(wrong),)
    return data.decode("latin-1"), "".join(bytes([b]).decode("cp1252", "ignore") or chr(b) for b in data)


def has_typical_marks(text: str) -> bool:
    """Whether `text` holds what lost characters look like after a misreading."""
    return _TYPICAL.search(text) is not None
