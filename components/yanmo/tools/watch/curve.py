"""A curve in a terminal: two by four dots in each character (Unicode's Braille patterns)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Row, column of a dot -> its bit, from U+2800."""


def curve(points: Sequence[tuple[float, float]], width: int, height: int) -> list[str]:
    """Lines of `width` characters that show `points` (x, y) and straight lines between them; the top first.

    Args:
        points: by rising x; at least one.
    """
    columns, rows = 2 * width, 4 * height
    xs, ys = [x for x, _ in points], [y for _, y in points]
    dots = [
        (_place(x, xs[0], xs[-1], columns), rows - 1 - _place(y, min(ys), max(ys), rows)) for x, y in points
    ]
    bits = [[0] * width for _ in range(height)]
    for (x, y), (to_x, to_y) in itertools.pairwise([dots[0], *dots]):
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        for step in range(steps + 1):
            column, row = x + round((to_x - x) * step / steps), y + round((to_y - y) * step / steps)
            bits[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
    return ["".join(chr(0x2800 + one) if one else " " for one in line) for line in bits]


def _place(value: float, least: float, most: float, count: int) -> int:
    """Which of `count` equal parts of the range holds the value."""
    if most <= least:
        return 0
    return min(int((value - least) / (most - least) * count), count - 1)
