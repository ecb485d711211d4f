"""Bits of every document under one model, without and with its genre tag.

Both readings go through one pool of processes, in batches that do not depend on how many there are, so that
any number of workers gives the same figures.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from yanmo.common.errors import DataError
from yanmo.common.store.output import Output
from yanmo.evaluate.documents import Document
from yanmo.model import hf_export, scoring
from yanmo.model.decoder import Decoder

log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]
_DIGITS = 4
"""Decimals of a document's bits; the rest depends on the processor's order of summation."""


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, with its tokenizer."""

    output: Output
    model: Decoder
    symbols: hf_export.Symbols
    tokenizer: Tokenizer

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of `<|bos|> text <|eos|>` for each text; a tag written in a text is text."""
        encoded = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [[self.symbols.bos, *e.ids, self.symbols.eos] for e in encoded]


@dataclass(frozen=True)
class Scores:
    """Arrays parallel to the documents that were scored."""

    tokens: npt.NDArray[np.int32]
    """Tokens that are predicted: those of the text and `<|eos|>`."""
    bits: Floats
    bits_with_tag: Floats | None
    """NaN for a document whose genre has no tag; None when tags were not asked for."""


def load_model(output: Output) -> LoadedModel:
    """Read the model of a train output, every file verified.

    Raises:
        DataError: a file is damaged, or model and tokenizer do not belong together.
    """
    output.paths("*")  # verified, all of them
    model, symbols = hf_export.load(output.path("config.json").parent)
    tokenizer = _read_tokenizer(output.path("tokenizer.json"))
    _check_vocabulary(output, tokenizer, model.config.vocab_size, symbols)
    return LoadedModel(output, model, symbols, tokenizer)


def _read_tokenizer(path: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing narrower
        raise DataError(f"{path}: not a readable tokenizer: {error}") from error
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _check_vocabulary(output: Output, tokenizer: Tokenizer, size: int, symbols: hf_export.Symbols) -> None:
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= size:
        raise DataError(
            f"{output}: model of another vocabulary: its embedding has {size} rows, its tokenizer.json gives "
            f"ids up to {highest}; run the train stage again on the token cache of that tokenizer"
        )
    used = {"<|bos|>": symbols.bos, "<|eos|>": symbols.eos}
    found = {name: tokenizer.token_to_id(name) for name in used}
    wrong = [
        f"{n}: {i} in tokenizer.json, {used[n]} in config.json" for n, i in found.items() if i != used[n]
    ]
    if wrong:
        raise DataError(f"{output}: model of another vocabulary: {'; '.join(wrong)}")


def score(loaded: LoadedModel, documents: Sequence[Document], *, with_tag: bool, workers: int) -> Scores:
    """The bits of every document, line breaks and `<|eos|>` included.

    Args:
        with_tag: also read each document behind its genre tag; only the first window sees it, so only
            that one is read again.
        workers: batches scored at a time; the figures do not depend on it.

    Raises:
        DataError: the model gives a figure that is not finite.
    """
    began = time.monotonic()
    torch.set_num_threads(1)  # of each operation: equal sums whatever the number of workers
    plain = [np.array(ids, np.int64) for ids in loaded.encode([d.text for d in documents])]
    context = loaded.model.config.max_position_embeddings
    tags = [loaded.symbols.tag(d.genre) for d in documents] if with_tag else [None] * len(documents)
    tagged = {i: np.insert(plain[i], 1, tag)[: context + 1] for i, tag in enumerate(tags) if tag is not None}
    tokens = np.array([len(ids) - 1 for ids in plain], np.int32)
    log.info("scoring %d documents, %d tokens", len(documents), tokens.sum())
    found = scoring.token_bits(loaded.model, [*plain, *tagged.values()], threads=workers)
    bits = np.array([each.sum() for each in found[: len(plain)]])
    second = np.full(len(plain), math.nan)
    for i, head in zip(tagged, found[len(plain) :], strict=True):
        second[i] = head[1:].sum() + found[i][context - 1 :].sum()  # head[0] is the tag itself
    _check_finite(loaded.output, np.concatenate([bits, second[list(tagged)]]))
    read = sum(map(len, found))
    log.info("scored %.0f tokens/s, %d at a time", read / (time.monotonic() - began), workers)
    return Scores(tokens, bits.round(_DIGITS), second.round(_DIGITS) if with_tag else None)


def _check_finite(output: Output, bits: Floats) -> None:
    wrong = int((~np.isfinite(bits)).sum())
    if wrong:
        raise DataError(f"{output}: gives no finite probability for {wrong} documents; its training diverged")
