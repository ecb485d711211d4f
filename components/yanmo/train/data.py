"""Rows of training data: a pure function of the plan and the global sample number.

Sample `n` is row `n` of the plans of epoch 0, 1, 2 ... laid end to end; optimizer step `s` takes the samples
`s * batch_rows` onwards, the last batch of an epoch is filled from the next one, and rank `r` takes its
slice. So the position is one number, and neither ranks nor accumulation change which samples make a step.

    B = rows, T = positions of a row
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from yanmo.common.errors import DataError
from yanmo.common.token_cache import DocumentIndex, TokenCache
from yanmo.train.noise import TokenNoise
from yanmo.train.packing import Plan, plan_epoch, tagged_documents

NO_TARGET = -1
"""Target of a position that carries no loss: padding, `<|bos|>` before a tag, outside of the loss spans."""


@dataclass(frozen=True)
class Batch:
    """Packed rows."""

    ids_BT: NDArray[np.int64]
    targets_BT: NDArray[np.int64]
    segments_BT: NDArray[np.int64]
    """Number of the document in its row, from 1; 0 is padding."""

    def rows(self, begin: int, end: int) -> Batch:
        """The rows from `begin` to before `end`."""
        return Batch(self.ids_BT[begin:end], self.targets_BT[begin:end], self.segments_BT[begin:end])

    @property
    def num_targets(self) -> int:
        return int((self.targets_BT != NO_TARGET).sum())


class Samples:
    """The training rows of a token cache, by global sample number."""

    def __init__(
        self,
        cache: TokenCache,
        *,
        context: int,
        seed: int,
        tag_share: float,
        pad: int,
        noise_share: float = 0.0,
    ) -> None:
        """Args:
        context: positions of a row.
        tag_share: share of documents that show their genre tag.
        pad: id fed where a row is not full.
        noise_share: share of the fed tokens that are replaced (`TokenNoise`).

        Raises:
            DataError: the cache has no training documents.
        """
        self._cache, self._context, self._seed = cache, context, seed
        self._tag_share, self._pad = tag_share, pad
        self.index: DocumentIndex = cache.split("train")
        if not len(self.index):
            raise DataError("the token cache has no training documents; look at curate's report")
        self._noise: TokenNoise | None = None
        if noise_share:
            self._noise = TokenNoise(cache, self.index, share=noise_share, seed=seed)
        self._tag_of = np.array(cache.tag_ids, np.int64)[self.index.genre]
        self._plans: dict[int, Plan] = {}
        self._starts = [0]

    @property
    def tokens_per_character(self) -> float:
        """Predicted tokens per character of the training split: turns loss into bits per character."""
        predicted = int(self.index.length.astype(np.int64).sum()) - len(self.index)
        return predicted / max(int(self.index.characters.astype(np.int64).sum()), 1)

    def plan(self, epoch: int) -> Plan:
        """The plan of an epoch; the last two are kept."""
        if epoch not in self._plans:
            tagged = tagged_documents(self.index.ids.tolist(), self._seed, epoch, self._tag_share)
            tagged &= self._tag_of >= 0
            plan = plan_epoch(self.index.length, tagged, self._context, self._seed, epoch)
            self._plans = {e: p for e, p in self._plans.items() if e == epoch - 1} | {epoch: plan}
        return self._plans[epoch]

    def locate(self, sample: int) -> tuple[int, int]:
        """Epoch and row of a global sample number."""
        while sample >= self._starts[-1]:
            epoch = len(self._starts) - 1
            self._starts.append(self._starts[-1] + len(self.plan(epoch)))
        epoch = bisect_right(self._starts, sample) - 1
        return epoch, sample - self._starts[epoch]

    def batch(self, first: int, count: int) -> Batch:
        """The samples from `first`, `count` of them."""
        shape = (count, self._context)
        batch = Batch(
            np.full(shape, self._pad, np.int64),
            np.full(shape, NO_TARGET, np.int64),
            np.zeros(shape, np.int64),
        )
        for row in range(count):
            self._fill(batch, row, *self.locate(first + row))
            if self._noise:
                self._noise.apply(batch.ids_BT[row], batch.segments_BT[row], first + row)
        return batch

    def document_ids(self, first: int, count: int) -> list[str]:
        """Ids of the documents (pieces of documents) in these samples, in order."""
        found: list[str] = []
        for epoch, row in (self.locate(first + i) for i in range(count)):
            plan = self.plan(epoch)
            pieces = slice(plan.row_offsets[row], plan.row_offsets[row + 1])
            found += [str(self.index.ids[d]) for d in plan.document[pieces]]
        return found

    def _fill(self, batch: Batch, row: int, epoch: int, plan_row: int) -> None:
        plan, at = self.plan(epoch), 0
        first, last = plan.row_offsets[plan_row], plan.row_offsets[plan_row + 1]
        for number, piece in enumerate(range(first, last), start=1):
            document, length = int(plan.document[piece]), int(plan.length[piece])
            start, tagged = int(plan.start[piece]), bool(plan.tagged[piece])
            tokens = self._tokens(document, start, length + 1)
            end = at + length + tagged
            if tagged:
                batch.ids_BT[row, at], batch.ids_BT[row, at + 1] = tokens[0], self._tag_of[document]
                batch.ids_BT[row, at + 2 : end] = tokens[1:-1]
            else:
                batch.ids_BT[row, at:end] = tokens[:-1]
            batch.targets_BT[row, at + tagged : end] = self._targets(document, start, tokens[1:])
            batch.segments_BT[row, at:end] = number
            at = end

    def _tokens(self, document: int, start: int, count: int) -> NDArray[Any]:
        begin = int(self.index.offset[document]) + start
        tokens: NDArray[Any] = self._cache.tokens[int(self.index.shard[document])][begin : begin + count]
        return tokens

    def _targets(self, document: int, start: int, tokens: NDArray[Any]) -> NDArray[np.int64]:
        targets = tokens.astype(np.int64)
        spans = self.index.loss_spans.get(document)
        if spans is not None:
            place = start + 1 + np.arange(len(targets))
            counted = np.zeros(len(targets), bool)
            for begin, end in spans:
                counted |= (place >= begin) & (place < end)
            targets[~counted] = NO_TARGET
        return targets
