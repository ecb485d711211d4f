"""How documents become rows: the settings of `packing`, checked. Standard library only, for `config.py`."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.common.errors import UsageError

LONGEST_CONTEXT = 1 << 24
MODES = ("best-fit", "concat", "one")
OVERLAP_LOSS = ("once", "every")
SPLITS = ("train", "valid")
"""Those of a token cache: rows are made of each by itself."""


@dataclass(frozen=True, kw_only=True)
class Packing:
    """How documents become rows."""

    context: int
    """Positions of a row, 2 to 2^24."""
    mode: str = "best-fit"
    """best-fit; concat: one stream, cut every `context` positions; one: a document (or window) per row."""
    stride: int = 0
    """Windows over a document longer than the context begin at 0, stride, 2 stride ...; 0: the context."""
    overlap_loss: str = "once"
    """Where windows overlap, a token carries loss once (in the first window) or in every window."""
    split_longer_than: int = 0
    """best-fit: documents of more positions than this are cut wherever a row ends; 0 cuts only documents
    longer than the context, at multiples of the stride."""
    min_piece: int = 1
    """Least number of tokens that a piece of a cut document predicts."""

    def __post_init__(self) -> None:
        for problem in (*self._wrong_values(), *self._contradictions()):
            raise UsageError(problem)

    def _wrong_values(self) -> list[str]:
        problems = []
        if not 2 <= self.context <= LONGEST_CONTEXT:
            problems.append(f"--context {self.context}: expected 2 to {LONGEST_CONTEXT}")
        if self.mode not in MODES:
            problems.append(f"--packing {self.mode!r}: expected {', '.join(MODES)}")
        if self.overlap_loss not in OVERLAP_LOSS:
            problems.append(f"--overlap-loss {self.overlap_loss!r}: expected {' or '.join(OVERLAP_LOSS)}")
        if not 0 <= self.stride <= self.context:
            problems.append(
                f"--stride {self.stride}: expected 1 to {self.context} (--context), or 0 for --context"
            )
        if not 0 <= self.split_longer_than <= self.context:
            problems.append(
                f"--split-longer-than {self.split_longer_than}: expected 0 (off) to the context of "
                f"{self.context}; what is longer is always cut"
            )
        if not 1 <= self.min_piece <= max(self.context // 2, 1):
            problems.append(
                f"--min-piece {self.min_piece}: expected 1 to half of the context of {self.context}"
            )
        return problems

    def _contradictions(self) -> list[str]:
        problems = []
        if self.overlaps and (self.mode == "concat" or self.split_longer_than):
            what = "--packing concat" if self.mode == "concat" else "--split-longer-than"
            problems.append(f"{what} cuts where a row ends and has no windows: leave --stride at 0")
        if self.overlaps and self.min_piece > 1:
            problems.append("--min-piece with a --stride: windows overlap already; leave one of them out")
        if self.mode != "best-fit" and self.split_longer_than:
            problems.append(
                f"--split-longer-than belongs to --packing best-fit, not {self.mode}: leave it at 0"
            )
        if self.overlap_loss == "every" and not self.overlaps:
            problems.append(
                "--overlap-loss every without a --stride below the context: nothing overlaps; give "
                "one, or leave it out"
            )
        return problems

    @property
    def step(self) -> int:
        """Positions from one window to the next."""
        return self.stride or self.context

    @property
    def overlaps(self) -> bool:
        """Return whether windows share tokens."""
        return self.step < self.context

    @property
    def is_plain(self) -> bool:
        """Return whether all settings but the context are defaults; such plans keep their earlier digests."""
        return self == Packing(context=self.context)

    @property
    def longest_whole(self) -> int:
        """Positions of the longest document that is never cut."""
        return {"concat": 0, "one": self.context}.get(self.mode, self.split_longer_than or self.context)
