"""The report as one HTML page: shares as bars, tables, examples. No script, nothing loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from yanmo.balance.preview import Example, marked

_STYLE = """
:root{color-scheme:light dark;--ink:#1c1c1c;--paper:#fdfcf9;--faint:#8a8578;--line:#ddd8cc;
--old:#b9b2a3;--new:#a63d2f}
@media(prefers-color-scheme:dark){:root{--ink:#e9e6de;--paper:#191816;--line:#3a3833;--old:#6d685d;--new:#e07a63}}
body{font:16px/1.6 system-ui,"Noto Sans CJK SC","PingFang SC","Microsoft YaHei",sans-serif;color:var(--ink);
background:var(--paper);max-width:60rem;margin:auto;padding:1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.15rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{font-weight:600;color:var(--faint)}
svg{width:100%;max-width:46rem;height:auto}svg text{font-size:13px;fill:var(--ink)}
.old{fill:var(--old)}.new{fill:var(--new)}.warn{border-left:3px solid var(--new);padding-left:.7rem}
.pair{border-bottom:1px solid var(--line);padding:.4rem 0}.pair small,.note{color:var(--faint)}
del{color:var(--faint)}ins{color:var(--new);text-decoration:none;font-weight:600}
"""
_MOST_ROWS = 40
_MOST_CHARACTERS = 400
_MOST_DIFFERED = 2000
"""Characters of a text that are compared: the comparison is quadratic."""


def page(report: Mapping[str, Any], shown: Sequence[Example]) -> str:
    """The page, below 1 MB whatever the corpus."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<title>Yanmo balance</title><style>{_STYLE}</style>",
        f"<h1>Balance 配比 by {escape(report['by'])}</h1>",
        f"<p class=note>quotas {escape(report['quotas'] or 'none: all is kept')} in {report['unit']}; "
        f"tokens are {escape(report['tokens'])}</p>",
        *(f"<p class=warn>{escape(text)}</p>" for text in report["warnings"]),
        "<h2>Shares 份额, before (grey) and after</h2>",
        *(bars(report["classes"], what) for what in ("characters", "documents", "tokens")),
        "<h2>Classes 各类</h2>",
        table(report["classes"]),
    ]
    if "genres" in report:
        parts += ["<h2>Genres 体裁</h2>", table(report["genres"])]
    if report["augmentation"]:
        parts += _augmentation(report["augmentation"], shown)
    return "\n".join(parts) + "\n"


def _largest(classes: Mapping[str, Any], number: int) -> list[str]:
    order = sorted(classes, key=lambda name: -classes[name]["after"]["characters"])[:number]
    return [name for name in classes if name in set(order)]


def bars(classes: Mapping[str, Any], what: str) -> str:
    """An SVG with two bars per class (at most 20): its share of `what` before and after."""
    names = _largest(classes, 20)
    height, left, width = 34, 110, 640
    parts = [f'<text x="0" y="16">{what}, % of all</text>']
    for i, name in enumerate(names):
        top = 26 + i * height
        label = name if len(name) < 15 else name[:14] + "…"
        parts.append(f'<text x="{left - 8}" y="{top + 17}" text-anchor="end">{escape(label)}</text>')
        for offset, side, style in ((0, "before", "old"), (13, "after", "new")):
            share = classes[name][side]["shares"][what]
            length = share * (width - left - 60)
            parts.append(
                f'<rect class="{style}" x="{left}" y="{top + offset}" width="{length:.1f}" height="11"/>'
                f'<text x="{left + length + 6:.1f}" y="{top + offset + 10}">{100 * share:.1f}</text>'
            )
    total = 30 + len(names) * height
    aria = f"Share of {what} by class before and after"
    return f'<svg viewBox="0 0 {width} {total}" role="img" aria-label="{aria}">{"".join(parts)}</svg>'


def table(classes: Mapping[str, Any]) -> str:
    """Documents, characters and tokens of each class (at most 40), before and after."""
    head = ["class", "quota", "epochs", "missing"]
    head += [
        f"{what} {side}" for what in ("documents", "characters", "tokens") for side in ("before", "after")
    ]
    rows = []
    for name in _largest(classes, _MOST_ROWS):
        figures = classes[name]
        cells = [
            name,
            figures.get("quota") or "",
            f"{figures['epochs']:.2f}",
            f"{figures.get('missing', 0):,}",
        ]
        cells += [
            f"{figures[side][what]:,}"
            for what in ("documents", "characters", "tokens")
            for side in ("before", "after")
        ]
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    left = len(classes) - len(rows)
    more = f"<p class=note>and {left} smaller classes: report.json has all</p>" if left > 0 else ""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    return f"<div class=wide><table><tr>{titles}</tr>{''.join(rows)}</table></div>{more}"


def _augmentation(figures: Mapping[str, Any], shown: Sequence[Example]) -> list[str]:
    by_rule = "".join(
        f"<tr><td>{escape(rule)}</td><td>{number:,}</td></tr>" for rule, number in figures["rules"].items()
    )
    return [
        "<h2>Augmentation 增广</h2>",
        f"<p class=note>{escape(figures['options'])}</p>",
        *(f"<p class=warn>{escape(text)}</p>" for text in figures["advice"]),
        f"<div class=wide><table><tr><th>rule</th><th>documents</th></tr>{by_rule}</table></div>",
        f"<p>Copies that stayed plain because they would have shared a run of 13 characters with held-out "
        f"text: {figures['shared']:,}</p>",
        *map(_pair, shown),
    ]


def _pair(example: Example) -> str:
    before, after = (text[:_MOST_DIFFERED] for text in (example.before, example.after))
    pieces, length = [], 0
    for kind, old, new in marked(before, after):
        length += max(len(old), len(new))
        if kind == "equal":
            pieces.append(escape(old))
        else:
            pieces.append(
                (f"<del>{escape(old)}</del>" if old else "") + (f"<ins>{escape(new)}</ins>" if new else "")
            )
        if length > _MOST_CHARACTERS:
            pieces.append("…")
            break
    text = "".join(pieces).replace("\n", "<br>")
    title = f"{example.genre} {example.rule} {example.id[:16]}"
    return f"<div class=pair><small>{escape(title)}</small><br>{text}</div>"
