"""Markdown: one file is one document, whose front matter is fields; only a long one is cut, at its headings.

Front matter is what site generators put before a page, between two lines of `---` (YAML) or `+++` (TOML). It
is read line by line and not as YAML: many that one finds are none, and only plain values are wanted.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Sequence

from yanmo.chinese.code_spans import code_spans

_MOST_LINES = 200
"""Of front matter; with more of them it is text between two rules."""
_CLOSED_BY = {"---": ("---", "..."), "+++": ("+++",)}
_FIELD = re.compile(r"([^\s:=#'\"][^:=]{0,60}?)\s*[:=](?:\s+|\Z)(.*)|([^\s:=#'\"-]+)=(.*)")
_ITEM = re.compile(r"\s*-\s+(.*)")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\Z")


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
    found = _HEADING.match(text.lstrip().partition("\n")[0].rstrip())
    return (found[2] or "") if found and found[1] == "#" else ""


def cut_at_headings(text: str, most: int) -> list[tuple[int, str]]:
    """Return the parts of a page with the lines before each; one part up to `most` characters.

    It is cut at the highest headings that it has, a part that is still too long at those below, and parts
    side by side stay together as far as they fit. What has no heading is not cut.
    """
    if len(text) <= most:
        return [(0, text)]
    lines = text.splitlines(keepends=True)
    page = _Page(lines, _levels(lines), most)
    return [(begin, "".join(lines[begin:end])) for begin, end in page.parts(0, len(lines))]


def _levels(lines: Sequence[str]) -> list[int]:
    """For each line the level of its heading, 0 for none; what is inside of code is none."""
    levels, at = list[int](), 0
    spans = deque(code_spans("".join(lines)))
    for line in lines:
        while spans and spans[0][1] <= at:
            spans.popleft()
        heading = _HEADING.match(line.rstrip("\r\n"))
        levels.append(len(heading[1]) if heading and not (spans and spans[0][0] <= at) else 0)
        at += len(line)
    return levels


class _Page:
    def __init__(self, lines: Sequence[str], levels: Sequence[int], most: int) -> None:
        self._levels, self._most = levels, most
        self._ends = [0]
        for line in lines:
            self._ends.append(self._ends[-1] + len(line))

    def parts(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of the lines from `begin` to `end`."""
        inside = {n: self._levels[n] for n in range(begin + 1, end) if self._levels[n]}
        if self._fits(begin, end) or not inside:
            return [(begin, end)]
        highest = min(inside.values())
        bounds = [begin, *(n for n, level in inside.items() if level == highest), end]
        found: list[tuple[int, int]] = []
        for a, b in itertools.pairwise(bounds):
            for part in self.parts(a, b):
                if found and self._fits(found[-1][0], part[1]):
                    found[-1] = (found[-1][0], part[1])
                else:
                    found.append(part)
        return found

    def _fits(self, begin: int, end: int) -> bool:
        return self._ends[end] - self._ends[begin] <= self._most
