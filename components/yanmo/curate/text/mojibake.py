"""Garbled text (mojibake): Chinese decoded with a wrong encoding, repaired if nothing was lost.

A repair is accepted only if it can be proved: encoding the text with the wrong encoding gives bytes without
an error, these bytes decode with the right encoding without an error, decoding them with the wrong one again
gives exactly the garbled text, and the result consists of common characters where the garbled text did not.
If a character was already replaced by U+FFFD or `?`, there is no such proof: the text stays as it is, and the
filter `garbled` drops it.

Alternative not taken: ftfy, which repairs UTF-8 that was read as Latin-1 or cp1252, but none of the East
Asian misreadings."""

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
"""What replacement characters and uninitialised memory look like when they are read as GBK."""

SUSPECT_SHARE = 0.3
"""A text with a smaller share of common characters is examined: 241 of the 448,434 texts of the reference
corpora, in nearly all of them because of lost characters (squares); none of these is changed."""
_GOOD_SHARE = 0.5
"""Share of common characters that a repaired text has, at least."""
_MIN_GAIN = 0.3
"""By how much it rises by the repair, at least."""
_ODD_SHARE = 0.25
"""Share of rare and private-use characters, among those beyond ASCII, that garbled text has, at least."""
_FEW = 4
"""Common characters that a repaired text has, at least."""
_FEW_OF_HAN, _GOOD_SHARE_OF_HAN = 8, 0.7
"""The same where Han characters stand for others: some rare words, such as `狼藉 慰藉`, make sense in another
encoding too, but no eight common characters in ten."""
_LONG_LINE = 12
"""Characters of a line that can be proved to be garbled by itself, at least."""

# cp1252 leaves five bytes undefined; programs that misread text pass them through as C1 controls.
_TO_BYTES = {
    ord(bytes([b]).decode("cp1252")): b for b in range(256) if b not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}
_TO_BYTES |= {b: b for b in range(256)}


def repair(text: str) -> str:
    """`text`, repaired where it was read in a wrong encoding and nothing was lost.

    Line by line, as texts are often put together from several files: a line that makes more sense as it is
    stays.
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
    """Index -> repaired line, for the lines that were certainly encoded as `right` and read as `wrong`.

    Certain is what makes sense only after the repair: the text as a whole, or a line of some length. Short
    lines alone prove nothing: of a thousand headings of a book, some would make sense in another encoding.
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
    """Index -> repaired line, for the lines that make more sense when they are read as `right`."""
    result = {}
    for i, line in enumerate(lines):
        found = None if line.isascii() else _undo(line, wrong, right)
        if found and wrong == "cp1252" and not common_share(found):  # misread twice
            found = _undo(found, wrong, right)
        if found and found != line and common_share(found) > common_share(line):
            result[i] = found
    return result


def _is_proved(garbled: str, fixed: str, wrong: str) -> bool:
    """Return whether `garbled` is certainly garbled, and `fixed` is not."""
    share = common_share(fixed)
    few, good = (_FEW, _GOOD_SHARE) if wrong == "cp1252" else (_FEW_OF_HAN, _GOOD_SHARE_OF_HAN)
    if _common(fixed) < few or share < good or share - common_share(garbled) < _MIN_GAIN:
        return False
    known = [c for c in garbled if not c.isascii()]
    if wrong == "cp1252":  # not a sentence with an accent or two
        return len(known) >= 0.4 * len(garbled)
    # These encodings also have Russian and Japanese letters, but such text has few rare or private-use ones.
    odd = sum(_is_odd(c) for c in known)
    return odd >= _ODD_SHARE * len(known)


def _is_odd(c: str) -> bool:
    return "\ue000" <= c <= "\uf8ff" or ("\u3400" <= c <= "\u9fff" and c not in COMMON)


def _common(text: str) -> int:
    return sum(c in COMMON for c in text)


def _repair_runs(line: str) -> str:
    """Repair runs of Latin characters in a line that is Chinese otherwise."""

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
    """Return the texts that programs show which read `data` as `wrong`."""
    if wrong != "cp1252":
        return (data.decode(wrong),)
    return data.decode("latin-1"), "".join(bytes([b]).decode("cp1252", "ignore") or chr(b) for b in data)


def has_typical_marks(text: str) -> bool:
    """Return whether `text` has what replacement characters look like when they are read as GBK."""
    return _TYPICAL.search(text) is not None
