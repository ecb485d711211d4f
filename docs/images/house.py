"""Draw docs/images/house.svg: the rooms of the code, floor by floor.

    python docs/images/house.py

tests/test_pages.py fails where the picture is not what this writes, or where a room or an arrow is not
in tests/test_import_rules.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Room(NamedTuple):
    """A box: column of its left edge, floor from the top, columns wide; names, what they hold."""

    column: float
    floor: int
    columns: float
    names: str
    holds: str


ROOMS = {
    "pipelines": Room(0, 0, 4, "yanmo_pipelines", "the graph, KFP adapter, local runner 流水线"),
    "cli": Room(4, 0, 4, "cli", "the table of commands 命令表"),
    "tools": Room(8, 0, 4, "tools", "runs, nights, store, cache, model 工具"),
    "stages": Room(
        0,
        1,
        12,
        "resolve · curate · balance · tokenize · train · evaluate · promote",
        "the stages; none imports another 各阶段互不导入",
    ),
    "stage": Room(0, 2, 1.6, "stage", "life 阶段框架"),
    "nights": Room(1.6, 2, 1.4, "nights", "index 夜训索引"),
    "formats": Room(3, 4, 3, "formats", "documents, tokens, rows 格式"),
    "model": Room(6, 2, 3, "model", "decoder, export, bits 模型"),
    "verse": Room(9, 2, 1.7, "verse", "rules, forms 格律"),
    "engine": Room(8, 4, 2, "engine", "local, Ray 引擎"),
    "chinese": Room(10, 4, 2, "chinese", "rhymes, runs 汉语"),
    "options": Room(0, 5, 3, "options", "one line for each option 选项"),
    "store": Room(3, 5, 3, "store", "objects, manifests, pointers 存储"),
    "common": Room(0, 6, 12, "common", "errors, logs, compiled loops 基础"),
}
ARROWS = [
    ("pipelines", "stages"),
    ("tools", "stages"),
    ("stages", "stage"),
    ("stages", "formats"),
    ("stages", "model"),
    ("stages", "verse"),
    ("stages", "chinese"),
    ("stages", "engine"),
    ("stages", "nights"),
    ("stage", "store"),
    ("nights", "store"),
    ("formats", "store"),
    ("engine", "store"),
    ("model", "common"),
    ("verse", "chinese"),
    ("chinese", "common"),
    ("options", "common"),
    ("store", "common"),
]
"""Who imports whom; `common` is for all. The table of commands runs a stage by its name."""

LEFT, TOP, COLUMN, GAP, BOX, FLOOR = 40, 44, 75, 20, 58, 98
WIDTH, HEIGHT = 960, 44 + 6 * 98 + 58 + 22
HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" \
font-family="system-ui, sans-serif" font-size="15">
  <style>
    rect {{ fill: #fffefb; stroke: #8a8578 }} text {{ fill: #23221e; text-anchor: middle }}
    .small {{ font-size: 12px; fill: #6a675e }} .left {{ text-anchor: start }}
    path {{ fill: none; stroke: #8a8578; stroke-width: 1.5; marker-end: url(#tip) }}
  </style>
  <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
    <path d="M0 0 8 4 0 8z" style="fill:#8a8578;stroke:none;marker-end:none"/></marker></defs>
  <rect width="{WIDTH}" height="{HEIGHT}" style="stroke:none;fill:#faf9f4"/>
  <text x="16" y="26" class="small left">An arrow is an import; all run downwards. 箭头是导入，都向下。</text>
"""


def left(room: Room) -> float:
    """Where its box begins, pixels."""
    return LEFT + room.column * COLUMN


def width(room: Room) -> float:
    """Of its box, pixels."""
    return room.columns * COLUMN - (GAP if room.column + room.columns < 12 else 20)


def box(room: Room) -> str:
    """The box with its two lines of text."""
    x, y, middle = left(room), TOP + room.floor * FLOOR, left(room) + width(room) / 2
    return (
        f'  <rect x="{x:g}" y="{y:g}" width="{width(room):g}" height="{BOX}" rx="8"/>'
        f'<text x="{middle:g}" y="{y + 24:g}">{room.names}</text>'
        f'<text x="{middle:g}" y="{y + 45:g}" class="small">{room.holds}</text>\n'
    )


def arrow(upper: Room, lower: Room) -> str:
    """From the bottom of a box to the top of one below; straight down where one stands over the other."""
    begin = left(upper) + width(upper) / 2
    end = min(max(begin, left(lower) + 30), left(lower) + width(lower) - 30)
    if upper.columns > lower.columns:
        begin = end = left(lower) + width(lower) / 2
    top, bottom = TOP + upper.floor * FLOOR + BOX, TOP + lower.floor * FLOOR - 2
    return f'  <path d="M{begin:g} {top:g}L{end:g} {bottom:g}"/>\n'


def picture() -> str:
    """The whole SVG."""
    boxes = [box(room) for room in ROOMS.values()]
    return HEAD + "".join(boxes + [arrow(ROOMS[a], ROOMS[b]) for a, b in ARROWS]) + "</svg>\n"


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture(), encoding="utf-8")
