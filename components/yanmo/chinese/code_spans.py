"""What in a text is program code or an address, by the marks of Markdown: neither is markup or personal data.

Fenced blocks, inline code, lines indented like code after an empty line, and URLs. Every repetition is
bounded or begins at a mark that cannot repeat, so that a hostile text takes no longer than its length.
"""

from __future__ import annotations

import bisect
import re

_FENCE = re.compile(r"^[ \t>]{0,80}(`{3,}|~{3,})[^\n]*$", re.MULTILINE)
_INLINE = re.compile(r"(?<!`)(`{1,3})(?!`)((?:[^`\n]|\n(?!\s*\n)|`(?!\1)){1,1000}?)(?<!`)\1(?!`)")
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?:(?: {4}|\t)[^\n]*(?:\n|\Z)|[ \t]*\n(?= {4}|\t))+")
_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s<>\"'`，。；、）】」》]{1,2000}")
_HTML_PAGE = re.compile(r"\s{0,1000}<(?:!doctype html|html|\?xml)", re.IGNORECASE)
Spans = list[tuple[int, int]]


def code_spans(text: str) -> Spans:
    """Return where a text holds program code, in order and apart: (first character, end)."""
    spans = _fences(text)
    spans += [found.span() for found in _INLINE.finditer(text)] if "`" in text else []
    if ("\n\n    " in text or "\n\n\t" in text) and not _HTML_PAGE.match(text):
        spans += [found.span() for found in _INDENTED.finditer(text)]
    return _apart(spans)


def protected_spans(text: str) -> Spans:
    """`code_spans`, and addresses."""
    addresses = [found.span() for found in _URL.finditer(text)] if "://" in text else []
    return _apart(code_spans(text) + addresses)


def has_much_code(text: str) -> bool:
    """Return whether a text is about code: it has a fenced block, or several pieces of inline code."""
    spans = code_spans(text)
    return len(spans) >= 3 or any("\n" in text[start:end] for start, end in spans)


def is_in(at: int, spans: Spans) -> bool:
    """Return whether a character lies in one of the spans, which are in order and apart."""
    before = bisect.bisect_right(spans, at, key=lambda span: span[0])
    return before > 0 and at < spans[before - 1][1]


def between(text: str, spans: Spans) -> list[tuple[str, bool]]:
    """The text in pieces, and whether each is one of the spans."""
    pieces, at = [], 0
    for start, end in spans:
        pieces += [(text[at:start], False), (text[start:end], True)]
        at = end
    return [*pieces, (text[at:], False)]


def _fences(text: str) -> Spans:
    """Fenced blocks with their fences; one that is not closed lasts to the end, as in CommonMark."""
    if "```" not in text and "~~~" not in text:
        return []
    spans: Spans = []
    opened: tuple[int, str] | None = None
    for found in _FENCE.finditer(text):
        mark = found[1]
        if opened is None:
            if mark[0] == "~" or "`" not in found[0].replace(mark, "", 1):
                opened = found.start(), mark
        elif mark.startswith(opened[1]) and found[0].strip(" \t>") == mark:
            spans.append((opened[0], found.end()))
            opened = None
    return [*spans, (opened[0], len(text))] if opened else spans


def _apart(spans: Spans) -> Spans:
    """Spans in order; of two that overlap, the one that begins first."""
    found: Spans = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not found or start >= found[-1][1]:
            found.append((start, end))
    return found
