"""Draw docs/images/dashboard-*.svg: the dashboards' panels, from the same queries, of real runs.

    PYTHONPATH=tests python docs/images/dashboards.py [--folder FOLDER] [--only run | nights]

Runs the pipeline on the bundled corpus beside a real Prometheus (Debian's package) on two cores, a run of
some minutes and five short nights, and asks it what Grafana would ask, panel by panel, as the committed JSON
says. Where FOLDER holds them already, they are only drawn again. Grafana draws more beautifully; what is seen
is the same.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

from servers.prometheus import Prometheus, yanmo

from yanmo.common.logs import human_bytes, human_seconds
from yanmo.promote.page.charts import short, ticks_between

ROOT = Path(__file__).parents[2]
RULES = ROOT / "manifests/components/prometheus/rules.yaml"
DASHBOARDS = ROOT / "manifests/components/dashboards"
SETTINGS = {
    "data_sources": str(ROOT / "corpus/small.jsonl.zst"),
    "train_steps": "100",
    "options": "train.layers=4 train.width=128 train.heads=2 train.feed-forward=384 "
    "train.batch_rows=16 train.ranks=2 train.log_every=2 train.monitor=full train.monitor_every=10 "
    "train.valid_every=20 train.checkpoint_steps=25 train.peak_tflops=0.1",
}
AWAY = ("curate", "--store=s3://away", "--endpoint=http://127.0.0.1:9", "--run-id=away", "--wait-seconds=20")
NIGHTS: tuple[dict[str, str], ...] = (
    {"train_steps": "20"},
    {"train_steps": "60", "promote.hold": "true"},
    {"train_steps": "60"},
    {"train_steps": "60", "train_seed": "1"},
    {"train_steps": "150"},
)
"""What each is set to: a first champion, a better one that a person approves, nothing new, another seed, a
better one."""
LITTLE = (
    f"data_sources={ROOT / 'corpus/small.jsonl.zst'}",
    "options=train.layers=2 train.width=64 train.heads=2 train.feed-forward=192 train.batch_rows=8",
)
ENVIRONMENT = {
    "PYTHONPATH": f"{ROOT / 'components'}:{ROOT / 'pipelines'}",
    "AWS_ACCESS_KEY_ID": "any",
    "AWS_SECRET_ACCESS_KEY": "any",
}
STEPS = 240
"""Points of a line."""
CELL, LINE, GAP, WIDTH = 50, 26, 6, 1200
"""Pixels of a column and of a unit of height, between panels, and in all."""
TALLEST = 1500
"""Where a picture ends and the next one begins, at the next row."""
COLORS = (
    *("#4d6b86", "#a93224", "#2f6b4a", "#7d7a3f", "#6c5a86", "#8a6a4a"),
    *("#3f8f9b", "#c28a2c", "#9a4f7a", "#5b5b5b"),
)
NAMED = {
    "blue": "#4d6b86",
    "green": "#2f6b4a",
    "light-green": "#84c29d",
    "text": "#8d8778",
    "yellow": "#c28a2c",
    "red": "#a93224",
}
INK, SOFT, FRAME, PAPER, CARD = "#23211d", "#6f6a5f", "#e3ded2", "#faf8f3", "#fffefb"


def shown(value: float, unit: str) -> str:
    """A value with its unit, as short as a person reads."""
    if unit == "s":
        return human_seconds(value) if value >= 1 else f"{short(value)} s"
    if unit in ("bytes", "Bps"):
        return human_bytes(int(value)) + ("/s" if unit == "Bps" else "")
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit.startswith("suffix:"):
        return f"{short(value)} {unit.removeprefix('suffix:').strip()}"
    return short(value) + {"reqps": "/s", "flops": "FLOP/s", "joule": " J"}.get(unit, "")


def text(x: float, y: float, words: str, size: float = 11, color: str = INK, more: str = "") -> str:
    """One line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{color}" {more}>{escape(words)}</text>'


def cut(words: str, width: float, size: float = 11) -> str:
    """As much of it as fits."""
    most = int(width / (0.56 * size))
    return words if len(words) <= most else words[: max(most - 1, 1)] + "…"


class Series:
    """One line: its name and its points."""

    def __init__(self, found: dict[str, Any], legend: str) -> None:
        labels = found["metric"]
        self.labels = labels
        self.name = re.sub(r"\{\{(\w+)\}\}", lambda m: labels.get(m[1], ""), legend).strip()
        self.points = [(float(t), float(v)) for t, v in found["values"] if v not in ("NaN", "+Inf", "-Inf")]


class Picture:
    """What is drawn of one dashboard, as far as it fits into one file."""

    def __init__(self, ask: Callable[[str], list[dict[str, Any]]], start: float, end: float) -> None:
        self.ask, self.start, self.end = ask, start, end
        self.drawn: list[str] = []
        self.height = 0.0

    def heading(self, title: str) -> None:
        self.drawn.append(text(8, self.height + 20, title, 14, INK, 'font-weight="600"'))
        self.height += 30

    def panel(self, panel: dict[str, Any], x: float, y: float) -> None:
        width = panel["gridPos"]["w"] * CELL - GAP
        height = panel["gridPos"]["h"] * LINE - GAP
        self.drawn.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3" '
            f'fill="{CARD}" stroke="{FRAME}"/>'
        )
        self.drawn.append(text(x + 8, y + 16, cut(panel["title"], width - 16), 11, INK, 'font-weight="600"'))
        series = [
            one
            for target in panel["targets"]
            for found in self.ask(target["expr"])
            if (one := Series(found, target["legendFormat"])).points
            if panel["type"] == "table" or not target["instant"] or self.is_now(one)
        ]
        if not series:
            why = re.search(r"Needs [^.]+\.", panel.get("description", ""))
            words, at = cut(why[0] if why else "No data", width - 16), x + width / 2
            self.drawn.append(text(at, y + height / 2 + 6, words, 11, SOFT, 'text-anchor="middle"'))
            return
        draw = {
            "stat": self.stat,
            "bargauge": self.bars,
            "timeseries": self.lines,
            "state-timeline": self.states,
            "table": self.table,
        }
        series.sort(key=lambda one: one.points[0][0])
        draw[panel["type"]](panel, series, x + 8, y + 26, width - 16, height - 32)

    def is_now(self, one: Series) -> bool:
        """Whether it is there at the end of what is shown."""
        return one.points[-1][0] > self.end - 1.6 * (self.end - self.start) / STEPS

    def stat(
        self, panel: dict[str, Any], series: list[Series], x: float, y: float, width: float, height: float
    ) -> None:
        """The last value of each, large."""
        defaults = panel["fieldConfig"]["defaults"]
        for number, one in enumerate(series[:3]):
            value, color = one.points[-1][1], INK
            for step in defaults["thresholds"]["steps"]:
                color = NAMED[step["color"]] if step["value"] is None or value >= step["value"] else color
            is_name = panel["options"].get("textMode") == "name"
            words = one.name if is_name else shown(value, defaults["unit"])
            size = 22 if len(series) == 1 else 15
            at = y + height / 2 + size / 3 + (number - (min(len(series), 3) - 1) / 2) * (size + 4)
            words = cut(words, width, size)
            self.drawn.append(
                text(x + width / 2, at, words, size, color, 'text-anchor="middle" font-weight="600"')
            )

    def bars(
        self, panel: dict[str, Any], series: list[Series], x: float, y: float, width: float, height: float
    ) -> None:
        """A bar for each last value."""
        unit, left, right = panel["fieldConfig"]["defaults"]["unit"], 0.42 * width, 70.0
        most = max(one.points[-1][1] for one in series) or 1.0
        rows = min(len(series), max(int(height / 15), 1))
        listed = series if len(series) <= rows else series[: rows - 1]
        each = min(height / rows, 24.0)
        for place, one in enumerate(listed):
            value, top = one.points[-1][1], y + place * each
            self.drawn.append(text(x, top + each / 2 + 3, cut(one.name, left - 6, 9.5), 9.5, SOFT))
            long = max((width - left - right) * value / most, 1.0)
            self.drawn.append(
                f'<rect x="{x + left:.1f}" y="{top + 2:.1f}" width="{long:.1f}" height="{each - 4:.1f}" '
                f'fill="{NAMED["blue"]}"/>'
            )
            self.drawn.append(text(x + left + long + 5, top + each / 2 + 3, shown(value, unit), 9.5))
        if len(listed) < len(series):
            more = f"and {len(series) - len(listed)} more"
            self.drawn.append(text(x, y + (rows - 0.5) * each + 3, more, 9.5, SOFT))

    def lines(
        self, panel: dict[str, Any], series: list[Series], x: float, y: float, width: float, height: float
    ) -> None:
        """Lines over time, or areas above each other."""
        defaults = panel["fieldConfig"]["defaults"]
        unit = defaults["unit"]
        is_stack = defaults["custom"].get("stacking", {}).get("mode") == "normal"
        left, bottom = 62.0, 16.0
        rows = min((len(series) + 1) // 2, 3)
        inner_w, inner_h = width - left, height - bottom - 13 * rows
        below = dict[float, float]()
        places: list[list[tuple[float, float, float]]] = []
        for one in series:
            line = []
            for at, value in one.points:
                base = below.get(at, 0.0) if is_stack else 0.0
                below[at] = base + value
                line.append((at, base, base + value if is_stack else value))
            places.append(line)
        values = [p[2] for line in places for p in line]
        low = min(defaults.get("min", min(values)), min(values))
        high = max(values)
        if high - low < 1e-9 * max(abs(high), 1.0):
            high = low + (abs(low) or 1.0)
        ticks = ticks_between(low, high, 4)
        high = max(high, ticks[-1])

        def px(at: float) -> float:
            return x + left + inner_w * (at - self.start) / (self.end - self.start)

        def py(value: float) -> float:
            return y + inner_h * (1 - (value - low) / (high - low))

        for tick in ticks:
            self.drawn.append(
                f'<path d="M{x + left:.1f} {py(tick):.1f}h{inner_w:.1f}" stroke="{FRAME}" stroke-width="1"/>'
            )
            self.drawn.append(
                text(x + left - 5, py(tick) + 3.5, shown(tick, unit), 9, SOFT, 'text-anchor="end"')
            )
        for minute in ticks_between(0, (self.end - self.start) / 60, 5):
            at = px(self.start + 60 * minute)
            self.drawn.append(text(at, y + inner_h + 12, f"{minute:g} min", 9, SOFT, 'text-anchor="middle"'))
        for number, line in enumerate(places):
            color = COLORS[number % len(COLORS)]
            for part in self.unbroken(line):
                above = " ".join(f"{px(t):.1f},{py(v):.1f}" for t, _, v in part)
                if is_stack:
                    under = " ".join(f"{px(t):.1f},{py(b):.1f}" for t, b, _ in reversed(part))
                    self.drawn.append(
                        f'<polygon points="{above} {under}" fill="{color}" fill-opacity=".55"/>'
                    )
                if len(part) == 1:
                    self.drawn.append(
                        f'<circle cx="{px(part[0][0]):.1f}" cy="{py(part[0][2]):.1f}" r="2" fill="{color}"/>'
                    )
                elif not is_stack:
                    self.drawn.append(
                        f'<polyline points="{above}" fill="none" stroke="{color}" stroke-width="1.3"/>'
                    )
        self.legend([one.name for one in series], x, y + inner_h + bottom + 10, width)

    def unbroken(self, line: list[tuple[float, float, float]]) -> Iterator[list[tuple[float, float, float]]]:
        """The parts of a line between which there was nothing."""
        step, part = (self.end - self.start) / STEPS, list[tuple[float, float, float]]()
        for place in line:
            if part and place[0] - part[-1][0] > 1.6 * step:
                yield part
                part = []
            part.append(place)
        yield part

    def legend(self, names: list[str], x: float, y: float, width: float) -> None:
        """Two columns, three lines; how many more there are."""
        listed = names if len(names) <= 6 else names[:5]
        for number, name in enumerate(listed):
            at, down = x + (number % 2) * width / 2, y + 13 * (number // 2)
            color = COLORS[number % len(COLORS)]
            self.drawn.append(f'<rect x="{at:.1f}" y="{down - 5:.1f}" width="12" height="3" fill="{color}"/>')
            self.drawn.append(text(at + 16, down, cut(name, width / 2 - 20, 9.5), 9.5, SOFT))
        if len(names) > len(listed):
            self.drawn.append(text(x + width / 2, y + 26, f"and {len(names) - 5} more", 9.5, SOFT))

    def states(
        self, panel: dict[str, Any], series: list[Series], x: float, y: float, width: float, height: float
    ) -> None:
        """A bar for each, in the colors of its states."""
        options = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
        left, each = 130.0, min((height - 16) / len(series), 26)
        step = (self.end - self.start) / STEPS
        scale = (width - left) / (self.end - self.start)
        for number, one in enumerate(series):
            top = y + number * each
            self.drawn.append(text(x, top + each / 2 + 3, cut(one.name, left - 8, 10), 10, SOFT))
            begin, last, state = one.points[0][0], *one.points[0]
            for at, value in [*one.points[1:], (one.points[-1][0] + 9 * step, -1.0)]:
                if value != state or at - last > 1.6 * step:
                    color = NAMED[options[f"{state:g}"]["color"]]
                    self.drawn.append(
                        f'<rect x="{x + left + (begin - self.start) * scale:.1f}" y="{top + 2:.1f}" '
                        f'width="{max((last + step - begin) * scale, 1.5):.1f}" height="{each - 4:.1f}" '
                        f'fill="{color}"/>'
                    )
                    begin, state = at, value
                last = at
        for number, option in enumerate(options.values()):
            at = x + left + number * 95
            color = NAMED[option["color"]]
            self.drawn.append(
                f'<rect x="{at:.1f}" y="{y + height - 8:.1f}" width="10" height="8" fill="{color}"/>'
            )
            self.drawn.append(text(at + 14, y + height, option["text"], 9.5, SOFT))

    def table(
        self, panel: dict[str, Any], series: list[Series], x: float, y: float, width: float, height: float
    ) -> None:
        """The labels of the last values; here of all that there were."""
        hidden = panel["transformations"][0]["options"]["excludeByName"]
        rows = [{k: v for k, v in one.labels.items() if k not in hidden} for one in series]
        names = sorted({name for row in rows for name in row})
        column = width / len(names)
        most = int(height / 14) - 1
        for number, name in enumerate(names):
            self.drawn.append(text(x + number * column, y + 8, cut(name, column - 6, 9.5), 9.5, SOFT))
            for place, row in enumerate(rows[:most]):
                words = cut(row.get(name, ""), column - 6, 9.5)
                self.drawn.append(text(x + number * column, y + 22 + 14 * place, words, 9.5))

    def svg(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:.0f}" '
            "font-family=\"system-ui, -apple-system, 'Segoe UI', 'Noto Sans CJK SC', sans-serif\">\n"
            f'<rect width="{WIDTH}" height="{self.height:.0f}" fill="{PAPER}"/>\n'
            + "\n".join(self.drawn)
            + "\n</svg>\n"
        )


def pictures(name: str, server: Prometheus, start: float, end: float) -> list[str]:
    """The SVGs of a dashboard."""
    dashboard = json.loads((DASHBOARDS / f"{name}.json").read_text(encoding="utf-8"))
    step = (end - start) / STEPS

    def ask(expression: str) -> list[dict[str, Any]]:
        asked = re.sub(r"\$(namespace|channel|run|rank)\b", ".*", expression)
        asked = asked.replace("$__rate_interval", f"{max(int(4 * step), 10)}s")
        asked = asked.replace(":15s]", ":1s]")  # from a scrape to the next
        return server.over(asked, start, end, step)

    rows: list[tuple[str, list[dict[str, Any]]]] = []
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            rows.append((panel["title"], panel["panels"]))
        else:
            rows[-1][1].append(panel)
    found = [Picture(ask, start, end)]
    for title, panels in rows:
        if found[-1].height > TALLEST:
            found.append(Picture(ask, start, end))
        picture = found[-1]
        if not any(ask(target["expr"]) for panel in panels for target in panel["targets"]):
            picture.heading(f"{title}: {len(panels)} panels that have nothing to show here")
            continue
        picture.heading(title)
        top = picture.height - LINE * min(panel["gridPos"]["y"] for panel in panels)
        for panel in panels:
            at = panel["gridPos"]
            picture.panel(panel, at["x"] * CELL + GAP / 2, top + at["y"] * LINE)
        picture.height = top + LINE * max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels)
    return [picture.svg() for picture in found]


def observed(server: Prometheus, folder: Path) -> tuple[float, float]:
    """Run what is to be drawn; from when to when it was."""
    settings = [word for pair in SETTINGS.items() for word in ("--set", "=".join(pair))]
    start = time.time()
    run = yanmo("run", "--store=runs/drawn", "--channel=demo", *settings)
    assert server.run(run, folder, ENVIRONMENT, folder / "run.log") == 0, folder / "run.log"
    away = yanmo(*AWAY, f"--sources={SETTINGS['data_sources']}")
    assert server.run(away, folder, ENVIRONMENT, folder / "away.log") == 75, folder / "away.log"
    return start, time.time()


def observed_nights(server: Prometheus, folder: Path) -> tuple[float, float]:
    """The nights of a channel, one after the other; from when to when they were."""
    start = time.time()
    place = ("--store=runs/nights", "--channel=nightly")
    for number, fields in enumerate(NIGHTS):
        values = (*LITTLE, *(f"{name}={value}" for name, value in fields.items()))
        words = [word for value in values for word in ("--set", value)]
        night = yanmo("run", *place, *words)
        assert server.run(night, folder, ENVIRONMENT, folder / f"night-{number + 1}.log") == 0
        if "promote.hold" in fields:
            waits = json.loads((folder / "runs/nights/pointers/nightly/train.json").read_bytes())["key"]
            approved = yanmo(
                "promote", "set", f"train/{waits}", *place, "--who=li", "--why=reads well", "--yes"
            )
            assert server.run(approved, folder, ENVIRONMENT, folder / "approved.log") == 0
    return start, time.time()


OBSERVED = {"run": observed, "nights": observed_nights}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", default="", help="keeps the runs and what Prometheus saw of them")
    parser.add_argument("--only", choices=OBSERVED, help="this dashboard alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.folder or temporary).absolute()
        with Prometheus(folder / "prometheus", RULES) as server:
            for name in [options.only] if options.only else OBSERVED:
                times = folder / f"times-{name}.json"
                if not times.exists():
                    times.write_text(json.dumps(OBSERVED[name](server, folder)))
                start, end = json.loads(times.read_text())
                for old in (ROOT / "docs/images").glob(f"dashboard-{name}-*.svg"):
                    old.unlink()
                for number, svg in enumerate(pictures(name, server, start, end), 1):
                    path = ROOT / "docs/images" / f"dashboard-{name}-{number}.svg"
                    path.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
