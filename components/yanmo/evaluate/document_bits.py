"""Bits of every document under one model, without and with its genre tag.

Both readings go through one pool, in batches that do not depend on how many workers there are, so that any
number of them gives the same bits.
"""

from __future__ import annotations

import copy
import functools
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from yanmo.common.errors import DataError, EnvironmentFault, UsageError
from yanmo.common.words import plural
from yanmo.evaluate.documents.reading import Document
from yanmo.formats.chat_tokens import chat_ids
from yanmo.formats.round_trip import check_given_back, open_tokenizer
from yanmo.model import hf_export, scoring
from yanmo.model.decoder import Decoder
from yanmo.model.generation.writer import Writer
from yanmo.model.windows import Window, plan_batches
from yanmo.store.output import Output

log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]
T = TypeVar("T")
R = TypeVar("R")
_DIGITS = 4
"""Decimals of a document's bits; the rest depends on the processor's order of summation."""
_TRAIN_AGAIN = "run the train stage again on the token cache of that tokenizer"


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, with its tokenizer, and where it computes."""

    output: Output
    model: Decoder
    """The copy on the CPU."""
    symbols: hf_export.Symbols
    tokenizer: Tokenizer
    device: str = "cpu"
    """`cpu`, `cuda` (all that there are) or `auto`."""

    @functools.cached_property
    def on_gpus(self) -> list[Decoder]:
        """A copy on each GPU; none where the CPU computes.

        Raises:
            UsageError: a GPU is asked for, and there is none.
        """
        return on_devices(self.model, self.device)

    @property
    def scorers(self) -> Sequence[Decoder]:
        """Return what scores texts: the model on the CPU, or the copies on GPUs."""
        return self.on_gpus or [self.model]

    @property
    def batch_tokens(self) -> int:
        """Tokens that are scored at a time."""
        return 16_384 if self.on_gpus else 1024

    @functools.cached_property
    def _writers(self) -> list[Writer]:
        return [Writer(model) for model in self.on_gpus or [self.model]]

    def writer(self, number: int = 0) -> Writer:
        """Return what writes the text of this number: GPUs take turns."""
        return self._writers[number % len(self._writers)]

    def map(self, function: Callable[[T], R], items: Sequence[T], workers: int) -> list[R]:
        """Return `function` of every item, in order: one at a time on each GPU, or `workers` on the CPU."""
        at_once = len(self.on_gpus) or workers
        if at_once <= 1:
            return [function(item) for item in items]
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(function, items))

    def encode(self, texts: Sequence[str], names: Sequence[str] = ()) -> list[list[int]]:
        """Ids of `<|bos|> text <|eos|>` for each text; a tag written in a text is text.

        Args:
            names: what the texts are, for a message.

        Raises:
            DataError: a text does not come back from its ids.
        """
        encoded = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        named = [
            (name, text) for name, text in zip(names or [f"{t[:20]!r}" for t in texts], texts, strict=True)
        ]
        check_given_back(self.tokenizer, named, [e.ids for e in encoded], f"{self.output}")
        return [[self.symbols.bos, *e.ids, self.symbols.eos] for e in encoded]


def on_devices(model: Decoder, device: str) -> list[Decoder]:
    """A copy of the model on each GPU; none where the CPU is to be used.

    Raises:
        EnvironmentFault: a GPU is asked for, and there is none.
    """
    number = _num_gpus(device)
    if device == "cuda" and not number:
        raise EnvironmentFault(
            "--device cuda: this machine shows no GPU to torch; use one that does, or --device cpu or auto"
        )
    copies = [copy.deepcopy(model).to(f"cuda:{i}") for i in range(number)]
    for one in copies:
        one.fuse()  # a copied matrix is no view of a joined one any more: it would be held twice
    return copies


def ran_on(device: str) -> dict[str, Any]:
    """Return what scored, for the cost that `yanmo runs` shows: the kind of device, and how many."""
    gpus = _num_gpus(device)
    return {"device": "cuda" if gpus else "cpu", "ranks": gpus or 1}


def _num_gpus(device: str) -> int:
    return torch.cuda.device_count() if device != "cpu" else 0


@dataclass(frozen=True)
class Scores:
    """Arrays parallel to the documents that were scored."""

    tokens: npt.NDArray[np.int32]
    """Tokens that are predicted: those of the text and `<|eos|>`; in a chat, those of its answers."""
    bits: Floats
    bits_with_tag: Floats | None
    """NaN for a document whose genre has no tag; None when tags were not asked for."""


def load_model(output: Output, device: str = "cpu") -> LoadedModel:
    """Read the model of a train output, every file verified.

    Args:
        device: where it is to compute: `cpu`, `cuda` (all that there are) or `auto`.

    Raises:
        DataError: a file is damaged, or model and tokenizer do not belong together.
    """
    output.paths("*")  # verified, all of them
    model, symbols = hf_export.load(output.path("config.json").parent)
    tokenizer = open_tokenizer(output.path("tokenizer.json"))
    _check_vocabulary(output, tokenizer, model.config.vocab_size, symbols)
    model.fuse()  # also where nothing is written, so that scores do not depend on it
    return LoadedModel(output, model, symbols, tokenizer, device)


def _check_vocabulary(output: Output, tokenizer: Tokenizer, size: int, symbols: hf_export.Symbols) -> None:
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= size:
        raise DataError(
            f"{output}: model of another vocabulary: its embedding has {size} rows, its tokenizer.json gives "
            f"ids up to {highest}; {_TRAIN_AGAIN}"
        )
    used = {"<|bos|>": symbols.bos, "<|eos|>": symbols.eos}
    found = {name: tokenizer.token_to_id(name) for name in used}
    wrong = [
        f"{n}: {i} in tokenizer.json, {used[n]} in config.json"
        for n, i in found.items()
        if i != used[n] and not (i is None and _is_mark(tokenizer, used[n]))  # an imported model's own
    ]
    if wrong:
        raise DataError(f"{output}: model of another vocabulary: {'; '.join(wrong)}; {_TRAIN_AGAIN}")


def _is_mark(tokenizer: Tokenizer, token_id: int) -> bool:
    known = tokenizer.get_added_tokens_decoder().get(token_id)
    return known is not None and known.special


def score(
    loaded: LoadedModel,
    documents: Sequence[Document],
    *,
    with_tag: bool,
    workers: int,
    stride: int = 0,
) -> Scores:
    """The bits of every document, line breaks and `<|eos|>` included; for a chat, those of its answers.

    Args:
        with_tag: also read each document with its genre tag; only the first window sees it, so only that
            one is read again.
        workers: batches scored at a time on a CPU; the bits do not depend on it.
        stride: tokens by which windows advance; 0 takes half the model's context.

    Raises:
        DataError: the model gives bits that are not finite.
        UsageError: the stride does not fit the model, or there is no such device.
    """
    began = time.monotonic()
    torch.set_num_threads(1)  # threads of each operation: equal sums whatever the number of workers
    plain = [encode(loaded, d) for d in documents]
    context = loaded.model.config.max_position_embeddings
    tagged = _tagged(loaded, documents, plain, context) if with_tag else {}
    reads = [*plain, *tagged.values()]
    batches = _planned(reads, context, stride, loaded.batch_tokens)
    tokens = np.array([read.counted.sum() for read in plain], np.int32)
    log.info("scoring %s, %s", plural(len(documents), "document"), plural(tokens.sum(), "token"))
    window_bits = _window_bits(loaded.scorers, reads, batches, workers)
    bits, second = _sums(batches, window_bits, len(plain), list(tagged), context)
    _check_finite(loaded.output, np.concatenate([bits, second[list(tagged)]]))
    read = sum(w.length for batch in batches for w in batch)
    log.info("scored %.0f tokens/s, %d at a time", read / (time.monotonic() - began), workers)
    return Scores(tokens, bits.round(_DIGITS), second.round(_DIGITS) if with_tag else None)


@dataclass(frozen=True)
class Read:
    """Tokens of one document as a model reads them."""

    ids: npt.NDArray[np.int64]
    counted: npt.NDArray[np.bool_]
    """One shorter than `ids`: whether the bits of token k + 1 count."""


def encode(loaded: LoadedModel, document: Document) -> Read:
    """A document from `<|bos|>` to `<|eos|>`; a tag or mark written in its text is text.

    Raises:
        DataError: a text that does not come back from its ids; a chat, for which the tokenizer has no marks.
    """
    if document.turns:
        name = f"document {document.id}"
        ids, counted = chat_ids(
            loaded.tokenizer, document.turns, loaded.symbols.bos, name, f"{loaded.output}"
        )
        return Read(np.array([*ids, loaded.symbols.eos]), np.array([*counted, False][1:]))
    found = np.array(loaded.encode([document.text], [f"document {document.id}"])[0], np.int64)
    return Read(found, np.ones(len(found) - 1, np.bool_))


def _tagged(
    loaded: LoadedModel, documents: Sequence[Document], plain: Sequence[Read], context: int
) -> dict[int, Read]:
    """Index of a document -> its first window with its genre tag; the tag itself does not count."""
    tags = ((i, loaded.symbols.tag(d.genre)) for i, d in enumerate(documents))
    return {
        i: Read(
            np.insert(plain[i].ids, 1, tag)[: context + 1], np.insert(plain[i].counted, 0, False)[:context]
        )
        for i, tag in tags
        if tag is not None
    }


def _planned(
    reads: Sequence[Read], context: int, stride: int, batch_tokens: int = 1024
) -> list[list[Window]]:
    try:
        lengths = [len(read.ids) for read in reads]
        counted = [read.counted for read in reads]
        return plan_batches(lengths, context, stride, batch_tokens, counted)
    except ValueError as error:
        raise UsageError(f"--stride: {error}") from error


def _window_bits(
    models: Sequence[Decoder], reads: Sequence[Read], batches: Sequence[list[Window]], workers: int
) -> Floats:
    """The counted bits of each window, and those of its last token: (windows, 2)."""
    tokens, counted = [read.ids for read in reads], [read.counted for read in reads]
    scored = scoring.score_batches(models, tokens, batches, workers, counted)
    found = [(float(each.sum()), float(each[-1])) for _, bits in scored for each in bits]
    return np.array(found, np.float64).reshape(-1, 2)


def _sums(
    batches: Sequence[list[Window]],
    window_bits: Floats,
    number: int,
    tagged: Sequence[int],
    context: int,
) -> tuple[Floats, Floats]:
    """Bits of each of `number` documents, and of those at `tagged` with their tag (NaN for others).

    A tag takes the place of one token: where the first window is full, its last token is read without.
    """
    windows = [w for batch in batches for w in batch]
    of = np.array([w.document for w in windows], np.int64)
    rest = np.where([w.scored > 1 for w in windows], window_bits[:, 0], window_bits[:, 1])
    rest[[w.scored == 1 and w.length < context for w in windows]] = 0.0
    size = number + len(tagged)
    bits, behind = (np.bincount(of, v, size).astype(np.float64) for v in (window_bits[:, 0], rest))
    second = np.full(number, math.nan)
    second[list(tagged)] = bits[number:] + behind[list(tagged)]
    return bits[:number], second


def _check_finite(output: Output, bits: Floats) -> None:
    wrong = int((~np.isfinite(bits)).sum())
    if wrong:
        raise DataError(
            f"{output}: gives no finite probability for {wrong} documents: its training diverged; "
            "make it with lower learning rates"
        )
