"""How long ago something was written, as options say it: 7d."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from yanmo.options.values import Bounds, number_in

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_AGE = Bounds(most=100 * 365 * 86400)
"""A hundred years, in seconds."""


@dataclass(frozen=True)
class Age:
    """An age such as 90s, 30m, 12h, 7d or 2w.

    Raises:
        ValueError: the text is none, or more than a hundred years.
    """

    text: str
    expected: ClassVar = "an age such as 90s, 30m, 12h, 7d or 2w, up to a hundred years"

    def __post_init__(self) -> None:
        if not _AGE.hold(self.seconds):
            raise ValueError(self.text)

    def __str__(self) -> str:
        return self.text

    @property
    def seconds(self) -> float:
        """The age in seconds; not a number where the text is none."""
        number = None if " " in self.text else number_in(self.text[:-1])
        unit = _UNITS.get(self.text[-1:])
        return 0.0 if self.text == "0" else math.nan if number is None or unit is None else number * unit
