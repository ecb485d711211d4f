"""Options of what a training reads: rows, their order, tags and noise."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.formats.packing_settings import LONGEST_CONTEXT, MODES, OVERLAP_LOSS, Packing
from yanmo.options.fields import Options, opt
from yanmo.options.values import MOST_EXACT
from yanmo.train.options.sizes import BUNDLED


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options, group="data"):
    """How documents become rows and batches (docs/explanation/packing.md)."""

    batch_rows: int = opt(
        32, "global batch: rows of --context tokens per optimizer step, over all ranks", least=1, often=True
    )
    context: int = opt(
        64,
        "context length: tokens of a row, which the model sees at once",
        least=2,
        most=LONGEST_CONTEXT,
        often=True,
    )
    packing: str = opt(
        "best-fit",
        "how documents become rows: best-fit packs whole documents and cuts only longer ones; concat "
        "cuts one long stream; one pads each document to a row",
        choices=MODES,
    )
    stride: int = opt(
        0,
        "tokens from one window to the next over a document longer than --context; 0 is --context, so "
        "that windows do not overlap",
    )
    overlap_loss: str = opt(
        "once",
        "where windows overlap, each token's loss counts once per epoch, or in every window",
        choices=OVERLAP_LOSS,
    )
    split_longer_than: int = opt(
        0,
        "best-fit may cut documents of more tokens than this to fill rows; 0 cuts only those longer "
        "than --context",
    )
    min_piece: int = opt(1, "least number of tokens that a piece of a cut document predicts", least=1)
    tag_share: float = opt(0.5, "share of the documents that are read with their genre tag", most=1)
    token_noise: float = opt(
        0.0,
        "share of the input tokens that are replaced by random tokens of the training text, others in "
        "each epoch",
        most=1,
    )
    seed: int = opt(
        0,
        "seed of the first weights and of the order of the data",
        form="train_seed",
        most=MOST_EXACT,
        auto=BUNDLED,
        often=True,
    )

    def contradictions(self) -> list[str]:
        """Return what cannot be together."""
        _ = self.packing_plan  # refuses by itself
        return []

    @property
    def packing_plan(self) -> Packing:
        """How documents become rows."""
        return Packing(
            context=self.context,
            mode=self.packing,
            stride=self.stride,
            overlap_loss=self.overlap_loss,
            split_longer_than=self.split_longer_than,
            min_piece=self.min_piece,
        )
