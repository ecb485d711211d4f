"""How documents become rows: the settings of `packing`, checked. Standard library only, for `config.py`."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.common.errors import UsageError

LONGEST_CONTEXT = 1 << 24
MODES = ("best-fit", "concat", "one")
SPLITS = ("train", "valid")
"""Those of a token cache: rows are made of each by itself."""


@dataclass(frozen=True, kw_only=True)
class Packing:
    """How documents become rows."""

    context: int
    """Positions of a row, 2 to 2^24."""
    mode: str = "best-fit"
    """best-fit; concat: one stream, cut every `context` positions; one: a document, or window, per row."""

    def __post_init__(self) -> None:
        if not 2 <= self.context <= LONGEST_CONTEXT:
            raise UsageError(f"--context {self.context}: expected 2 to {LONGEST_CONTEXT}")
        if self.mode not in MODES:
            raise UsageError(f"--packing {self.mode!r}: expected {', '.join(MODES)}")

    @property
    def is_plain(self) -> bool:
        """Return whether all settings but the context are defaults; such plans keep their earlier digests."""
        return self == Packing(context=self.context)

    @property
    def longest_whole(self) -> int:
        """Positions of the longest document that is never cut."""
        return 0 if self.mode == "concat" else self.context
