"""The page that a person reads first: one HTML file in English and Chinese, nothing loaded from anywhere.

Three lines of script choose the language that the browser prefers; the switch itself, and all else, is CSS.
The script is named by its sha256 in the page's Content-Security-Policy, so that no other one runs, wherever a
hostile text might find a gap. Everything shown comes from report.json, and is escaped by the template.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from yanmo.common.errors import DataError
from yanmo.common.logs import human_bytes, human_seconds
from yanmo.options.fields import shown
from yanmo.promote.gate.verdict import Words
from yanmo.promote.page import names
from yanmo.promote.page.charts import dot_chart, line_chart
from yanmo.promote.page.report import baseline_wins

_HERE = Path(__file__).parent
MOST_BYTES = 2_000_000
SCRIPT = (
    "if(/^zh/i.test(navigator.language||''))document.getElementById('lang-zh').checked=true;"
    "addEventListener('beforeprint',function(){document.querySelectorAll('details').forEach("
    "function(d){d.open=true})})"
)


def render(report: Mapping[str, Any]) -> str:
    """The page as HTML, below 2 MB.

    Args:
        report: as `yanmo.promote.page.report.make_report` gives it.
    """
    table = report["bits_per_character"]
    page: str = (
        _environment()
        .get_template("page.html.jinja")
        .render(
            r=report,
            css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
            script=Markup(SCRIPT),
            script_hash=base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode(),
            dots=dot_chart(table["columns"]),
            charts=training_charts(report["training"]),
            strongest=_strongest(baseline_wins(table)),
            memorization=memorization_rows(report),
            champion_verse=_verse_by_name(report["champion_writing"]),
            made_at=report["made_at"].replace("T", " ").removesuffix("+00:00") + " UTC",
        )
    )
    size = len(page.encode())
    if size >= MOST_BYTES:
        raise DataError(f"the page would have {size} bytes, above {MOST_BYTES}; lower evaluate's --samples")
    return page


def _strongest(wins: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The baseline that is hardest to beat, alone in a list; none without baselines."""
    known = [win for win in wins if win["mean_gain"] is not None]
    return sorted(known, key=lambda win: float(win["mean_gain"]))[:1]


def training_charts(training: Mapping[str, Any] | None) -> dict[str, Any]:
    """Name -> chart of the training's series; empty without a record, None for a series that it lacks."""
    if training is None:
        return {}
    series = training["series"]
    stalls = [(s["from_step"], s["to_step"]) for s in training["stalls"]]
    loss = {"train": series["bits_per_character"], "valid": training["valid"]}
    return {
        "loss": line_chart(loss, dotted="valid"),
        "gradient": line_chart({"train": series["grad_norm"]}, from_zero=True),
        "speed": line_chart({"train": series["tokens_per_second"]}, bands=stalls, from_zero=True),
        "rate": line_chart({"train": series["learning_rate"]}, from_zero=True),
    }


def memorization_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """{"name", "is_count", "figures"} of every plain figure; figures of challenger, champion, originals.

    Empty where nobody measured them; the champion's are left out where nobody measured his.
    """
    own = report["memorization"]
    if not isinstance(own, Mapping):
        return []
    columns = [own["generated"], own["held_out"]]
    if report["champion_writing"]:
        columns.insert(1, (report["champion_writing"]["memorization"] or {}).get("generated", {}))
    return [
        {"name": name, "is_count": name == "longest_copy", "figures": [c.get(name) for c in columns]}
        for name in own["generated"]
    ]


def _verse_by_name(writing: Mapping[str, Any] | None) -> dict[str, Any]:
    """Rule -> what the champion's texts obey; empty where nobody measured them."""
    return {row["name"]: row["generated"] for row in (writing or {}).get("verse") or ()}


def length_words(group: str) -> Words:
    """A bin of lengths as a person reads it: `64-127` and the last one, `1024-`."""
    low, _, high = group.partition("-")
    return (
        Words(f"{low} to {high}", f"{low} 至 {high} 字")
        if high
        else Words(f"{low} or more", f"{low} 字及以上")
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bits": lambda v: "–" if v is None else f"{v:.3f}",
        "signed": lambda v: "–" if v is None else minus(f"{v:+.3f}"),
        "minus": minus,
        "percent": lambda v: "–" if v is None else f"{100 * v:.1f} %",
        "count": lambda v: "–" if v is None else f"{v:,}",
        "number": number,
        "option": shown,
        "seconds": lambda v: "–" if v is None else human_seconds(v),
        "seconds_zh": lambda v: "–" if v is None else seconds_zh(v),
        "size": human_bytes,
    }
    environment.globals |= {"gloss": names.gloss, "called": names.called, "length_words": length_words}
    return environment


def seconds_zh(seconds: float) -> str:
    """A duration in Chinese: `8 秒`, `3 分 20 秒`, `2 小时 05 分`."""
    words = human_seconds(seconds)
    for english, chinese in ((" h ", " 小时 "), (" min", " 分"), (" s", " 秒")):
        words = words.replace(english, chinese)
    return words


def minus(text: str) -> str:
    """`text` with true minus signs."""
    return text.replace("-", "−")


def number(value: Any) -> str:
    """A figure of unknown kind: whole, or with four digits; a list of two as a range."""
    if isinstance(value, bool) or value is None:
        return "–" if value is None else str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)[:200]
