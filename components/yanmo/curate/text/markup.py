"""Tags and entities of HTML in texts, taken out or decoded; what only looks like them stays.

Outside of program code a tag goes if its name is an element's and it has its partner in the text, is an empty
element (`<br>`), or has attributes with values. So `a<b and c>d`, `#include <map>`, `List<String>` and a
placeholder `<table>` are text. Entities are decoded once, after the tags: a page that explains HTML keeps
what it shows. A script or style sheet goes with what is in it.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections import Counter
from urllib.parse import unquote

from yanmo.chinese.code_spans import between, code_spans, is_in

# The elements of HTML 4 and 5.
_ELEMENTS = (
    "a|abbr|acronym|address|applet|area|article|aside|audio|b|base|basefont|bdi|bdo|big|blockquote|body|br|"
    "button|canvas|caption|center|cite|code|col|colgroup|data|datalist|dd|del|details|dfn|dialog|dir|div|dl|dt|"
    "em|embed|fieldset|figcaption|figure|font|footer|form|frame|frameset|h[1-6]|head|header|hr|html|i|iframe|"
    "img|input|ins|kbd|label|legend|li|link|main|map|mark|menu|meta|meter|nav|noframes|noscript|object|ol|"
    "optgroup|option|output|p|param|picture|pre|progress|q|rp|rt|ruby|s|samp|script|section|select|small|"
    "source|span|strike|strong|style|sub|summary|sup|svg|table|tbody|td|template|textarea|tfoot|th|thead|time|"
    "title|tr|track|tt|u|ul|var|video|wbr"
)
_EMPTY = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track",
    "wbr",
))  # fmt: skip
_LINES = frozenset(["br", "p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6"])
"""Elements whose tags end a line."""
_CELLS = frozenset(["td", "th"])
"""Elements behind which a tab stands, if another one follows on its line, as in innerText."""
_ROW_END = re.compile(r"[ \t]{0,80}(?:\n|\Z|</t[rb])", re.IGNORECASE)
# Every repetition is bounded: a text of nothing but "<!--" would otherwise take minutes.
_VALUE = r"""(?:"[^"<>]{0,2000}"|'[^'<>]{0,2000}'|[^\s"'<>=&]{1,300})"""
_ATTRIBUTE = rf"\s+[A-Za-z_:@][\w:.-]{{0,60}}(?:\s?=\s?{_VALUE})?"
_TAG = (
    rf"<(?P<close>/?)(?P<name>{_ELEMENTS})(?P<attributes>(?:{_ATTRIBUTE}){{0,20}})\s?/?>|<!--.{{0,1000}}?-->"
)
_ENTITY = r"&(?P<entity>[A-Za-z]{2,31}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});"
_RAISED = r"(?P<base>[\w)\]}]?)<(?P<way>sup|sub)>[ \t]*(?P<raised>[^<>\n]{1,60}?)[ \t]*</(?P=way)>"
_TYPED = r"<(?P<typed>code|kbd)(?: [a-z-]{1,20})?>(?P<code>[^`\n]{1,200}?)</(?P=typed)>"
_ENTITIES = re.compile(_ENTITY)
_TAGS = re.compile(_TAG, re.DOTALL | re.IGNORECASE)
_MARKUP = re.compile(f"{_RAISED}|{_TYPED}|{_TAG}|{_ENTITY}", re.DOTALL | re.IGNORECASE)
_SCRIPT = re.compile(rf"(^[ \t]*)?<(script|style)(?:{_ATTRIBUTE}){{0,20}}\s?>", re.MULTILINE | re.IGNORECASE)
_CLOSING = {name: re.compile(f"</{name}>", re.IGNORECASE) for name in ("script", "style")}
_FORMULA_IMAGE = re.compile(
    r"""(?P<mark>["'])https?://[^"'?]{1,200}latex\?(?P<formula>(?:(?!(?P=mark)).){1,1000})(?P=mark)""",
    re.IGNORECASE,
)
_TO_CODE = re.compile(r"(?:</?[A-Za-z][^<>\n]{0,300}>){0,5}`")
_ROW, _QUOTE = re.compile(r"[ \t]{0,80}\|"), re.compile(r"[ \t]{0,80}(?:>[ \t]?){1,9}")
_ESCAPED = re.compile(r"\\([\[\](){}<>*_$#.!+-])")
_HIGHER = re.compile(r"[+-]?[0-9]+|[0-9]*[+-]|[ni](?:[+-][0-9])?")
_LOWERED = re.compile(r"[0-9+-]+")
_FORMULA = re.compile(r"[0-9A-Za-z+\-*/=()., ]+")
_ORDINAL = re.compile(r"st|nd|rd|th|TM|R", re.IGNORECASE)
_SUPER = str.maketrans("0123456789+-ni", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ")
_SUB = str.maketrans("0123456789+-", "₀₁₂₃₄₅₆₇₈₉₊₋")
_LEFT = re.compile(rf"""</?(?:{_ELEMENTS})\s[A-Za-z-]{{1,60}}\s?=\s?["']""", re.IGNORECASE)


def without_markup(text: str) -> str:
    """`text` without tags, its entities decoded, but for those in program code."""
    text = _without_scripts(text)
    spans = code_spans(text)
    lines = [0, *(found.end() for found in re.finditer("\n", text))]

    def is_code(found: re.Match[str]) -> bool:
        return is_in(found.start(), spans) or is_in(found.end() - 1, spans)

    tags = [found for found in _TAGS.finditer(text) if not is_code(found)]
    opened = Counter(found["name"].lower() for found in tags if found["name"] and not found["close"])
    closed = Counter(found["name"].lower() for found in tags if found["name"] and found["close"])
    pairs = {name for name in opened if closed[name]} - {"script", "style"}

    def read(found: re.Match[str]) -> str:
        if is_code(found):
            return found[0]
        line = lines[bisect_right(lines, found.start()) - 1]
        if found["way"]:
            return _raised(found, text[found.end() : found.end() + 1].isalnum())
        if found["typed"]:
            typed = _ESCAPED.sub(r"\1", _TAGS.sub("", found["code"]))
            typed = _decoded(typed, in_row=_ROW.match(text, line) is not None)
            return f"`{typed}`" if typed.strip() else typed
        if found["entity"]:
            return _decoded(found[0], in_row=_ROW.match(text, line) is not None)
        name, attributes = (found["name"] or "").lower(), found["attributes"] or ""
        if name and name not in _EMPTY and name not in pairs and "=" not in attributes:
            return found[0]
        if name == "img" and (formula := _FORMULA_IMAGE.search(attributes)):
            return f"${unquote(formula['formula'])}$"
        if name in _LINES:
            return _break(text, line, found.start(), found.end())
        if name in _CELLS and found["close"]:
            return "" if _ROW_END.match(text, found.end()) or _ROW.match(text, line) else "\t"
        is_behind_code = text[max(0, found.start() - 1) : found.start()] == "`"
        return " " if is_behind_code and _TO_CODE.match(text, found.end()) else ""  # two pieces stay two

    return _MARKUP.sub(read, text)


def _break(text: str, line: int, start: int, end: int) -> str:
    """Return what replaces a tag that ends a line: a blank in a row of a table; quotations stay."""
    if _ROW.match(text, line):
        return " "
    quote = _QUOTE.match(text, line)
    if not quote:
        return "\n"
    is_at_edge = start <= quote.end() or text[end : end + 1] in ("", "\n")
    return "" if is_at_edge else f"\n{quote[0].rstrip()} "


def has_markup(text: str) -> bool:
    """Return whether tags with attributes are left outside of program code."""
    return any(_LEFT.search(piece) for piece, is_code in between(text, code_spans(text)) if not is_code)


def _without_scripts(text: str) -> str:
    if "<s" not in text and "<S" not in text:
        return text
    kept, at, spans, unclosed = [], 0, code_spans(text), set[str]()
    for found in _SCRIPT.finditer(text):
        start, name = found.start(), found[2].lower()
        if start < at or name in unclosed or is_in(start, spans):
            continue
        closing = _CLOSING[name].search(text, found.end())
        if closing is None:
            unclosed.add(name)
            continue
        close, end = closing.span()
        if is_in(close, spans):
            continue
        is_block = found[1] is not None and not text[end : text.find("\n", end) % (len(text) + 1)].strip()
        within = text[start:close]
        if is_block or ("\n" not in within and set(";{}=") & set(within)):  # else a sentence about the tags
            kept.append(text[at:start])
            at = end
    return "".join([*kept, text[at:]])


def _decoded(text: str, in_row: bool) -> str:
    """Entities as they read; a bar would divide the row of a table."""

    def read(found: re.Match[str]) -> str:
        one = html.unescape(found[0])
        return "\\|" if in_row and one == "|" else one

    return _ENTITIES.sub(read, text)


def _raised(found: re.Match[str], has_more: bool) -> str:
    """`2<sup>7</sup>` is not 27, nor is `2<sup>n - 1</sup>` 2n - 1; `has_more`: a letter follows."""
    base, inner, is_sub = found["base"], html.unescape(found["raised"]), found["way"].lower() == "sub"
    if (_LOWERED if is_sub else _HIGHER).fullmatch(inner):
        return base + inner.translate(_SUB if is_sub else _SUPER)
    if not base or not _FORMULA.fullmatch(inner) or _ORDINAL.fullmatch(inner):
        return base + inner
    return f"{base}{'_' if is_sub else '^'}{inner if inner.isalnum() and not has_more else f'({inner})'}"
