"""What a document is in a .txt file: how novels and essays look.

A heading is a line of its own, 第三回 or 第十二章 with a title and no mark that ends a sentence.
"""

from __future__ import annotations

import itertools
import re

_HEADING = re.compile(
    r"^[ \t\u3000]*(第[〇零一二三四五六七八九十百千两0-9０-９]{1,9}[章回节卷集][^\n。！？；，]{0,40}?)"
    r"[ \t\u3000\r]*$",
    re.MULTILINE,
)
_BLANK = re.compile(r"\n[ \t\r]*\n")
_LOOKED_AT = 64 << 10


def likely_layout(head: bytes) -> str:
    """Return what a document is in a .txt file with this UTF-8 beginning: chapter, file or block.

    A chapter, if the file begins with a heading or has two in its first 64 KiB; the file, if four blocks of
    five begin with two wide spaces, as paragraphs do; else a block between blank lines.
    """
    text = head[:_LOOKED_AT].decode("utf-8", "ignore")
    headings = list(itertools.islice(_HEADING.finditer(text), 2))
    if len(headings) == 2 or (headings and not text[: headings[0].start()].strip()):
        return "chapter"
    blocks = [block.strip("\r\n") for block in _BLANK.split(text) if block.strip()]
    indented = sum(block.startswith("\u3000\u3000") for block in blocks)
    return "file" if indented > 3 and indented >= 0.8 * len(blocks) else "block"


def cut_at_chapters(text: str) -> list[tuple[int, str, str]]:
    """Return the chapters of a novel: lines before it, its heading ("" before the first), its text.

    A heading without text (a volume's, a table of contents) stays with the chapter behind it.
    """
    starts, start, name, end = list[tuple[int, str]](), 0, "", 0
    for heading in _HEADING.finditer(text):
        if text[end : heading.start()].strip():
            starts.append((start, name))
            start = heading.start()
        name, end = heading[1], heading.end()
    starts.append((start, name))
    found, line = [], 0
    for (begin, title), (stop, _) in itertools.pairwise([*starts, (len(text), "")]):
        found.append((line, title, text[begin:stop]))
        line += text.count("\n", begin, stop)
    return found
