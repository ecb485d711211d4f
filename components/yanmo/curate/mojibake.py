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

from yanmo.curate.common_characters import common_share

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
"""Text with a smaller share of common characters is looked at. Of 406,000 texts of the reference corpora 31
are below, most of them lists of rare characters."""
_GOOD_SHARE = 0.5
_MIN_GAIN = 0.3
_FEW = 4

# cp1252 leaves five bytes undefined; programs that misread text pass them through as C1 controls.
_TO_BYTES = {
    ord(bytes([b]).decode("cp1252")): b for b in range(256) if b not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}
_TO_BYTES |= {b: b for b in range(256)}


def repair(text: str) -> str:
    """`text` with wrong readings undone where that is lossless, or `text` itself.

    The whole text is tried first, then line by line, as texts are often glued together from several files.
    """
    for _ in range(2):  # twice misread
        found = _repair_whole(text) or _repair_lines(text)
        if found is None or found == text:
            break
        text = found
    return text


def _repair_lines(text: str) -> str | None:
    lines = text.split("\n")
    fixed = [(_repair_whole(line) if is_suspect(line) else None) or _repair_runs(line) for line in lines]
    return "\n".join(fixed) if fixed != lines else None


def is_suspect(text: str) -> bool:
    """Whether `text` has characters that are not ASCII and few of them are common Chinese ones."""
    return not text.isascii() and common_share(text) < SUSPECT_SHARE


def _repair_whole(text: str) -> str | None:
    before = common_share(text)
    best: tuple[float, str] | None = None
    for wrong, right in _MISREAD:
        found = _undo(text, wrong, right)
        if found is None or found == text:
            continue
        after = common_share(found)
        is_better = after >= _GOOD_SHARE and after - before >= _MIN_GAIN and _han(found) >= _FEW
        if is_better and (best is None or after > best[0]):
            best = after, found
    return best[1] if best else None


def _repair_runs(line: str) -> str:
    """Repair Latin runs inside a line that is Chinese otherwise."""

    def fixed(match: re.Match[str]) -> str:
        found = _undo(match[0], "cp1252", "utf-8")
        return found if found and common_share(found) >= _GOOD_SHARE else match[0]

    return _RUNS.sub(fixed, line)


def _undo(text: str, wrong: str, right: str) -> str | None:
    """`text`, which was read as `wrong`, read as `right`; None where that is not lossless."""
    try:
        data = _encode(text, wrong)
        found = data.decode(right)
        return found if _read_wrongly(found, wrong, right) == text else None
    except (UnicodeError, KeyError):
        return None


def _encode(text: str, encoding: str) -> bytes:
    if encoding == "cp1252":
        return bytes(_TO_BYTES[ord(c)] for c in text)
    return text.encode(encoding)


def _read_wrongly(text: str, wrong: str, right: str) -> str:
    """What `text` in encoding `right` looks like when it is read as `wrong`."""
    data = text.encode(right)
    if wrong != "cp1252":
        return data.decode(wrong)
    sloppy = data.decode("latin-1")
    return sloppy if sloppy == text else _as_cp1252(data)


def _as_cp1252(data: bytes) -> str:
    return "".join(bytes([b]).decode("cp1252", "ignore") or chr(b) for b in data)


def _han(text: str) -> int:
    return sum("\u3400" <= c <= "\u9fff" for c in text)


def has_typical_marks(text: str) -> bool:
    """Whether `text` holds what lost characters look like after a misreading."""
    return _TYPICAL.search(text) is not None
