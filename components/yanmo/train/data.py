"""Rows of training data: a pure function of the plan and the global sample number.

Sample `n` is row `n` of the plans of epochs 0, 1, 2 ... laid end to end. Optimizer step `s` takes the samples
from `s * batch_rows` on, so the last batch of an epoch is filled from the next one, and each rank takes its
slice. So the position is one number, and neither the ranks nor accumulation change which samples make a step.

A dozen numpy operations gather the rows of a batch; a thread gathers the next ones during the training step.
There is no state to save. Alternative not taken: worker processes, which signals reach; one thread is fast
enough (benchmarks/cache.py at 816394a).

    B = rows, T = positions of a row
"""

from __future__ import annotations

import dataclasses
import threading
from bisect import bisect_right
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from yanmo.common.errors import DataError
from yanmo.common.threads import thread_pool
from yanmo.formats.packing import PackingPlan, id_numbers, plan_epoch, tagged_documents
from yanmo.formats.packing_settings import Packing
from yanmo.formats.token_cache import DocumentIndex, TokenCache
from yanmo.train.row_draws import FrequentTokens, TokenNoise

NO_TARGET = -1
"""Target of a position without loss: padding, `<|bos|>` before a tag, one outside of the loss spans."""
_TRIM = 8
"""The width of a batch whose rows hold one document each is a multiple of this many positions."""
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Packed rows."""

    ids_BT: Ints
    """Input tokens."""
    targets_BT: Ints
    """The token after each position, or NO_TARGET."""
    segments_BT: Ints
    """Number of the document at each position, counted in its row from 1; 0 is padding."""
    is_padded: bool = False
    """Whether each row holds one document: then `rows` leaves out positions that are padding in all rows."""
    kinds_BT: NDArray[np.uint8] | None = None
    """Which logits each position computes (`FrequentTokens.kinds`); None where all compute all."""
    frequent: FrequentTokens | None = None
    """With `kinds_BT`: the frequent tokens."""

    def rows(self, begin: int, end: int) -> Batch:
        """Return the rows from `begin` to before `end`."""
        width = self.ids_BT.shape[1]
        if self.is_padded:
            longest = int((self.segments_BT[begin:end] > 0).sum(1).max(initial=1))
            width = min(-(-longest // _TRIM) * _TRIM, width)
        ids, targets, segments = self.ids_BT, self.targets_BT, self.segments_BT
        part = slice(begin, end), slice(None, width)
        kinds = None if self.kinds_BT is None else self.kinds_BT[part]
        return Batch(ids[part], targets[part], segments[part], kinds_BT=kinds, frequent=self.frequent)

    @property
    def num_targets(self) -> int:
        """Positions that carry loss."""
        return int((self.targets_BT != NO_TARGET).sum())


class Samples:
    """The training rows of a token cache, by global sample number."""

    def __init__(
        self,
        cache: TokenCache,
        *,
        packing: Packing,
        seed: int,
        tag_share: float,
        pad: int,
        noise_share: float = 0.0,
        frequent: int = 0,
        prefetch: int = 0,
    ) -> None:
        """Args:
        packing: context, and how documents share rows.
        tag_share: share of the documents read with their genre tag; those with loss spans (chats) never are.
        pad: token id of padding.
        noise_share: share of the input tokens that are replaced (`TokenNoise`).
        frequent: tokens whose logits alone most positions compute; 0 computes all logits.
        prefetch: batches that a thread makes in advance.

        Raises:
            DataError: the cache has no training documents.
        """
        self._cache, self._packing, self._seed = cache, packing, seed
        self._tag_share, self._pad = tag_share, pad
        self.index: DocumentIndex = cache.split("train")
        if not len(self.index):
            raise DataError("the token cache has no training documents; look at curate's report")
        self._noise: TokenNoise | None = None
        if noise_share:
            self._noise = TokenNoise(cache, self.index, share=noise_share, seed=seed)
        self.frequent: FrequentTokens | None = None
        if 0 < frequent < cache.vocab_size:
            self.frequent = FrequentTokens(cache, self.index, frequent, seed)
        self._spans = LossSpans(self.index)
        self._tag_of = np.array(cache.tag_ids, np.int64)[self.index.genre]
        self._tag_of[self._spans.has_spans] = -1
        self._numbers = id_numbers(self.index.ids)
        self._plans: dict[int, PackingPlan] = {}
        self._starts = [0]
        self._planning = threading.RLock()
        self._thread = thread_pool(1, "yanmo-rows") if prefetch else None
        self._most_ahead = prefetch
        self._ahead: deque[tuple[tuple[int, int], Future[Batch]]] = deque()

    @property
    def tokens_per_character(self) -> float:
        """Predicted tokens per character of the training split: turns loss into bits per character."""
        predicted = int(self.index.length.astype(np.int64).sum()) - len(self.index)
        predicted -= self._spans.num_silent
        return predicted / max(int(self.index.characters.astype(np.int64).sum()), 1)

    def plan(self, epoch: int) -> PackingPlan:
        """Return the plan of an epoch; keeps it and that of the epoch before."""
        with self._planning:
            if epoch not in self._plans:
                tagged = tagged_documents(self._numbers, self._seed, epoch, self._tag_share)
                tagged &= self._tag_of >= 0
                plan = plan_epoch(self.index.length, tagged, self._packing, self._seed, epoch)
                self._plans = {e: p for e, p in self._plans.items() if e == epoch - 1} | {epoch: plan}
            return self._plans[epoch]

    def locate(self, sample: int) -> tuple[int, int]:
        """Return the epoch and row of a global sample number."""
        with self._planning:
            while sample >= self._starts[-1]:
                epoch = len(self._starts) - 1
                self._starts.append(self._starts[-1] + len(self.plan(epoch)))
            epoch = bisect_right(self._starts, sample) - 1
            return epoch, sample - self._starts[epoch]

    def batch(self, first: int, count: int) -> Batch:
        """`count` samples from sample `first` on."""
        if self._thread is None:
            return self._make(first, count)
        while self._ahead and self._ahead[0][0] != (first, count):  # made for what was rewound
            self._ahead.popleft()
        batch = self._ahead.popleft()[1].result() if self._ahead else self._make(first, count)
        while len(self._ahead) < self._most_ahead:
            following = first + count * (1 + len(self._ahead)), count
            self._ahead.append((following, self._thread.submit(self._make, *following)))
        return batch

    def document_ids(self, first: int, count: int) -> list[str]:
        """Return the id of the document of each piece in these samples, in order."""
        found: list[str] = []
        for epoch, row in (self.locate(first + i) for i in range(count)):
            plan = self.plan(epoch)
            pieces = slice(plan.row_offsets[row], plan.row_offsets[row + 1])
            found += [str(self.index.ids[d]) for d in plan.document[pieces]]
        return found

    def _make(self, first: int, count: int) -> Batch:
        shape = (count, self._packing.context)
        batch = Batch(
            np.full(shape, self._pad, np.int64),
            np.full(shape, NO_TARGET, np.int64),
            np.zeros(shape, np.int64),
            self._packing.mode == "one",
        )
        done = 0
        while done < count:
            epoch, row = self.locate(first + done)
            plan = self.plan(epoch)
            rows = min(count - done, len(plan) - row)
            self._fill(batch, done, plan, row, row + rows)
            done += rows
        if self._noise:
            for row in range(count):
                self._noise.apply(batch.ids_BT[row], batch.segments_BT[row], first + row)
        if self.frequent:
            kinds = [self.frequent.kinds(batch.targets_BT[row], first + row) for row in range(count)]
            return dataclasses.replace(batch, kinds_BT=np.stack(kinds), frequent=self.frequent)
        return batch

    def _fill(self, batch: Batch, at_row: int, plan: PackingPlan, begin: int, end: int) -> None:
        """Fill the rows of a batch from `at_row` on with the rows `begin` to `end` of a plan.

        Token `k` of a piece is the input at position `k` of the piece, and the target of the position before
        it; after a tag, both are one position later.
        """
        part = slice(plan.row_offsets[begin], plan.row_offsets[end])
        document, start, length = (a[part].astype(np.int64) for a in (plan.document, plan.start, plan.length))
        tagged = plan.tagged[part].astype(np.int64)
        in_row = np.diff(plan.row_offsets[begin : end + 1])
        size = length + tagged
        first_piece = np.repeat(np.cumsum(in_row) - in_row, in_row)
        ends = np.cumsum(size)
        offset = ends - size
        place = (at_row + np.repeat(np.arange(end - begin), in_row)) * plan.context
        place += offset - offset[first_piece]
        number = np.arange(1, len(size) + 1) - first_piece
        piece, k = _runs(length + 1)
        tokens = self._gather(document, start, piece, k)
        where = place[piece] + k + np.where(k > 0, tagged[piece], 0)
        fed = k < length[piece]
        ids, targets, segments = (a.reshape(-1) for a in (batch.ids_BT, batch.targets_BT, batch.segments_BT))
        ids[where[fed]] = tokens[fed]
        ids[place[tagged > 0] + 1] = self._tag_of[document[tagged > 0]]
        counted = k > 0
        counted &= self._spans.hold(document[piece], start[piece] + k)
        targets[where[counted] - 1] = tokens[counted]
        piece, k = _runs(size)
        segments[place[piece] + k] = number[piece]

    def _gather(self, document: Ints, start: Ints, piece: Ints, k: Ints) -> Ints:
        """For each element of `piece` and `k`, token `start + k` of that piece's document."""
        at = (self.index.offset[document] + start)[piece] + k
        shard = self.index.shard[document]
        if shard.min(initial=0) == shard.max(initial=0):
            return np.asarray(self._cache.tokens[int(shard[0])][at], np.int64)
        tokens, of = np.empty(len(at), np.int64), shard[piece]
        for number in np.unique(shard).tolist():
            tokens[of == number] = self._cache.tokens[number][at[of == number]]
        return tokens


class LossSpans:
    """Which tokens of documents carry loss, for many tokens at a time."""

    def __init__(self, index: DocumentIndex) -> None:
        spans = dict(sorted(index.loss_spans.items()))
        self.has_spans = np.zeros(len(index), bool)
        self.has_spans[list(spans)] = True
        borders = [(document << 32) + place for document, of in spans.items() for s in of for place in s]
        self._borders = np.array(borders, np.int64)
        """Begin and end of every span, as document * 2^32 + position, sorted: a token inside a span has an
        odd number of them at or before it."""
        inside = int((self._borders[1::2] - self._borders[::2]).sum())
        self.num_silent = int((index.length[self.has_spans].astype(np.int64) - 1).sum()) - inside
        """Tokens after `<|bos|>` that carry no loss."""

    def hold(self, document: Ints, place: Ints) -> NDArray[np.bool_]:
        """Return whether each token, at `place` of `document`, carries loss."""
        if not self.has_spans.any():
            return np.ones(len(place), bool)
        inside = np.searchsorted(self._borders, (document << 32) + place, side="right") % 2 == 1
        found: NDArray[np.bool_] = inside | ~self.has_spans[document]
        return found


def _runs(lengths: Ints) -> tuple[Ints, Ints]:
    """For consecutive runs of these lengths: the run of each element, and its position in the run."""
    run = np.repeat(np.arange(len(lengths)), lengths)
    return run, np.arange(len(run)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def cut_chats(index: DocumentIndex, context: int) -> str:
    """Return what is lost where chats do not fit a row of `context` positions, in words; "" where all do."""
    longest = max((int(index.length[i]) for i in index.loss_spans), default=0) - 1
    number = sum(int(index.length[i]) - 1 > context for i in index.loss_spans)
    if not number:
        return ""
    return (
        f"{number} of {len(index.loss_spans)} chats are longer than --context {context} and are cut: what is "
        f"behind the cut is learned without its question; the longest needs --context {longest} "
        "(train.context)"
    )
