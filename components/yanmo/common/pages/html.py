"""Every HTML page: one template engine, one frame, nothing loaded from anywhere.

A page is a template beside the code that fills it in; it extends base.html.jinja, which lies here and brings
the head, the two languages, light, dark, phone and paper. All text is escaped, and a name that nobody gave is
an error and not an empty place.

A few lines of script choose the language that the browser prefers, tell a screen reader which one is shown,
and mark the tables that can be scrolled sideways; the switch itself, and all else, is CSS.
The script is named by its sha256 in the page's Content-Security-Policy, so that no other one runs, wherever a
hostile text might find a gap.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket

from yanmo.common.logs import human_bytes, human_seconds
from yanmo.common.words import visible

_HERE = Path(__file__).parent
_MOST_OF_A_NAME = 80
_MOST_OF_A_TEXT = 10_000
"""Characters of any one text: what nobody reads to its end, a printed command among it."""
SCRIPT = (
    "(function(){var d=document,zh=d.getElementById('lang-zh');"
    "function follow(){d.documentElement.lang=zh.checked?'zh-Hans':'en'}"
    "if(/^zh/i.test(navigator.language||''))zh.checked=true;"
    "function hint(){d.querySelectorAll('.wide').forEach(function(e){"
    "e.classList.toggle('scrolls',e.scrollWidth>e.clientWidth+1)})}"
    "follow();addEventListener('change',follow);addEventListener('pageshow',follow);"
    "['load','resize','change'].forEach(function(n){addEventListener(n,hint)});"
    "d.addEventListener('toggle',hint,true);"
    "addEventListener('beforeprint',function(){d.querySelectorAll('details').forEach("
    "function(e){e.open=true})})})()"
)


def render(template: Path, filters: Mapping[str, Callable[..., Any]], **values: Any) -> str:
    """Return the page that `template` makes of `values`.

    Args:
        template: extends base.html.jinja; may include what lies beside it, and import words.html.jinja.
        filters: more than those of every page (_FILTERS).
    """
    environment = Environment(
        loader=FileSystemLoader([template.parent, _HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_COMPILED,
    )
    environment.filters |= _FILTERS | dict(filters)
    return environment.get_template(template.name).render(
        script=SCRIPT,
        script_hash=base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode(),
        **values,
    )


class _Compiled(BytecodeCache):
    """The templates that this process has compiled, which takes longer than all else of a page.

    The environment is each page's own, as its filters may know its values.
    """

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        assert bucket.code is not None
        self._code[bucket.key, bucket.checksum] = bucket.code


_COMPILED = _Compiled()


def _shown(value: Any) -> Any:
    """Return a value for a template: not endless, and without what cannot be seen and changes its neighbours.

    Marks of writing direction and control characters, also in the page's title, are shown as `\\u202e`, half
    of a surrogate pair as U+FFFD (UTF-8 has none).
    """
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return cut(value, _MOST_OF_A_TEXT).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut(text: str, length: int = _MOST_OF_A_NAME) -> str:
    """Return a name or sentence of somebody's data, no longer than a person reads, all of it visible."""
    shown = visible(text[: length + 1])
    return shown if len(shown) <= length else shown[: length - 1] + "…"


def first(rows: Iterable[Any], number: int) -> list[Any]:
    """So many of `rows` (of a mapping: of its pairs), as no table of a page is longer than a person reads."""
    return list(islice(rows.items() if isinstance(rows, Mapping) else rows, number))


def minus(text: str) -> str:
    """`text` with true minus signs."""
    return text.replace("-", "−")


def number(value: Any) -> str:
    """Return a figure of unknown kind: whole, or with four digits; a list of two as a range."""
    if isinstance(value, bool) or value is None:
        return "–" if value is None else str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)[:200]


def _seconds_zh(seconds: float) -> str:
    """Return a duration in Chinese: `8 秒`, `3 分 20 秒`, `2 小时 05 分`."""
    words = human_seconds(seconds)
    for english, chinese in ((" h ", " 小时 "), (" min", " 分"), (" s", " 秒")):
        words = words.replace(english, chinese)
    return words


_FILTERS: dict[str, Callable[..., Any]] = {
    "bits": lambda v: "–" if v is None else f"{v:.3f}",
    "signed": lambda v: "–" if v is None else minus(f"{v:+.3f}"),
    "minus": minus,
    "percent": lambda v: "–" if v is None else f"{100 * v:.1f} %",
    "count": lambda v: "–" if v is None else f"{v:,}",
    "number": number,
    "seconds": lambda v: "–" if v is None else human_seconds(v),
    "seconds_zh": lambda v: "–" if v is None else _seconds_zh(v),
    "size": human_bytes,
    "cut": cut,
    "first": first,
}
