"""What a document is in a .txt file, by how novels and essays look, and in a file of Markdown.

A heading is a line of its own, 第三回 or 第十二章 with a title and no mark that ends a sentence.

A file of Markdown is one document, whose front matter is fields. That is what site generators put before a
page, between two lines of `---` (YAML) or `+++` (TOML). It is read line by line and not as YAML: many that
one finds are none, and only plain values are wanted.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

_HEADING = re.compile(
    r"^[ \t\u3000]*(第[〇零一二三四五六七八九十百千两0-9０-９]{1,9}[章回节卷集][^\n。！？；，]{0,40}?)"
    r"[ \t\u3000\r]*$",
    re.MULTILINE,
)
_BLANK = re.compile(r"\n[ \t\r]*\n")
_LOOKED_AT = 64 << 10
_MOST_LINES = 200
"""Of front matter; with more of them it is text between two rules."""
_CLOSED_BY = {"---": ("---", "..."), "+++": ("+++",)}
_FIELD = re.compile(r"([^\s:=#'\"][^:=]{0,60}?)\s*[:=](?:\s+|\Z)(.*)|([^\s:=#'\"-]+)=(.*)")
_ITEM = re.compile(r"\s*-\s+(.*)")
_PAGE_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\Z")


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


def front_matter(text: str) -> tuple[dict[str, str], str, int]:
    """Return the fields before a page, the page, and in which line after the first it begins.

    A list is its items with commas between; what is nested is left out.
    """
    opened, _, _ = text.partition("\n")
    ends = _CLOSED_BY.get(opened.rstrip())
    if ends is None:
        return {}, text, 0
    lines = text.split("\n", _MOST_LINES)
    last = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() in ends), 0)
    fields = _fields([line.rstrip() for line in lines[1:last]])
    return (fields, "\n".join(lines[last + 1 :]), last + 1) if fields else ({}, text, 0)


def _fields(lines: Sequence[str]) -> dict[str, str]:
    """Name -> value; nothing where a line is none of front matter."""
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        item, field = _ITEM.fullmatch(line), _FIELD.fullmatch(line)
        if item and name:
            found[name] = ", ".join(filter(None, (found[name], _plain(item[1]))))
        elif field:
            name = (field[1] or field[3]).strip()
            found[name] = _plain(field[2] if field[1] else field[4])
        elif line and not line.startswith((" ", "\t", "#", "[", "]", "}")):
            return {}
    return found


def _plain(value: str) -> str:
    value = value.strip()
    if value[:1] in ("'", '"') and value[-1:] == value[:1] and len(value) > 1:
        return value[1:-1]
    if value.startswith("[") and value.endswith("]"):
        return ", ".join(filter(None, (_plain(item) for item in value[1:-1].split(","))))
    return "" if value in ("|", ">", "null", "~") or value.startswith("{") else value


def first_heading(text: str) -> str:
    """Return the heading that a page begins with; "" where it begins with something else."""
    found = _PAGE_HEADING.match(text.lstrip().partition("\n")[0].rstrip())
    return (found[2] or "") if found and found[1] == "#" else ""
