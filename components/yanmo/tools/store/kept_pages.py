"""Of how many nights the pages stay whole, as an option says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from yanmo.options.values import Bounds, number_in

_MOST = Bounds(least=1)


@dataclass(frozen=True)
class KeptPages:
    """Of how many nights the pages stay whole: `all`, or a number.

    Raises:
        ValueError: the text is neither.
    """

    text: str
    expected: ClassVar = "all, or of how many nights: a whole number from 1"

    def __post_init__(self) -> None:
        number = number_in(self.text)
        is_number = number is not None and number.is_integer() and _MOST.hold(number)
        if self.text != "all" and not is_number:
            raise ValueError(self.text)

    def __str__(self) -> str:
        return self.text

    @property
    def nights(self) -> int | None:
        """How many; None for all."""
        return None if self.text == "all" else int(number_in(self.text) or 0)
