"""Words that want to be more than words, in every text of a report; what a page makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from typing import Any

from hypothesis import strategies as st

from yanmo.common.words import visible

VOID = {"meta", "input", "br", "img", "link"}
_MARKUP = [
    "<script>",
    "</script>",
    "</style>",
    "</title>",
    "<!--",
    "-->",
    "<img src=x onerror=a()>",
    "&lt;",
    "&#60;",
]
_TEMPLATE = ["{{", "}}", "{{7*7}}", "{%", "%}", "{#", "#}", "%s", "%(x)s", "{0}", "\\ud800", "\\x3c", "${x}"]
_CHARACTERS = list("<>&\"'`/=;:#%{}()\x07\x7f\u200f\u202e\u202d\u2066\u200b\ufeff\ufffe月𠮷")
_SHORT = 60
"""Characters that every page shows of every text; longer ones are cut in some places."""
HOSTILE = st.lists(st.sampled_from([*_MARKUP, *_TEMPLATE, *_CHARACTERS]), min_size=1, max_size=6).map(
    lambda parts: "".join(parts)[:_SHORT]
)


class Tree(HTMLParser):
    """Tags with their attributes in order, and the words; every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[Any] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, attrs))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, attrs))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def poisoned(value: Any, more: str, *, keys: Iterable[str], kept: Iterable[str], at: str = "") -> Any:
    """`value` with `more` after every text in it, and after the names in the mappings called `keys`.

    Args:
        kept: mappings' names whose texts choose what the page shows, and do not come from anywhere else.
    """
    rest = {"keys": set(keys), "kept": set(kept)}
    if isinstance(value, dict):
        named = at in rest["keys"]
        return {f"{n}{more}" if named else n: poisoned(v, more, at=n, **rest) for n, v in value.items()}
    if isinstance(value, list):
        return [poisoned(v, more, **rest) for v in value]
    return f"{value}{more}" if isinstance(value, str) and at not in rest["kept"] else value


def grown(value: Any, keys: Iterable[str], number: int = 3000, at: str = "") -> Iterator[tuple[str, Any]]:
    """`value` with one list, or one mapping of those called `keys`, grown to `number` members; each in turn.

    Returns:
        Pairs of the place that has grown and the whole document.
    """
    if isinstance(value, list) and value:
        yield at, value * (number // len(value))
    if isinstance(value, dict) and value and at in keys:
        some = list(value.values())
        names = (f"{'月' * 400}{i}" for i in range(number))
        yield at, value | {name: some[i % len(some)] for i, name in enumerate(names)}
    if isinstance(value, dict | list):
        for name, member in value.items() if isinstance(value, dict) else enumerate(value):
            for place, more in grown(member, keys, number, name if isinstance(name, str) else ""):
                copy = value.copy()
                copy[name] = more
                yield f"{at} > {place}", copy


def check(page_of: Callable[[str], str], more: str) -> None:
    """With `more` in every text the page has the tags that it has with plain text, and shows it as it is.

    But for what cannot be seen and turns what is beside it around: that is shown as `\\u202e`.
    """
    shown = visible(more)
    plain = re.sub(".", "x", shown)
    hostile, harmless = Tree(page_of(more)), Tree(page_of(plain))
    assert hostile.tags == harmless.tags
    found, expected = "".join(hostile.words), "".join(harmless.words)
    assert found.count(shown) >= 10
    assert found == visible(found), "something that cannot be seen"
    assert len(found) == len(expected), "a text was changed on its way"
    pairs = zip(found, expected, strict=True)
    assert all(a == b or (b == "x" and a in shown) for a, b in pairs)
