"""Texts that the model writes, chosen by seed and not by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from tokenizers import Tokenizer

from yanmo.common.bootstrap import generator_for
from yanmo.evaluate.document_bits import LoadedModel
from yanmo.evaluate.writing.generate import generate


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """How texts are drawn."""

    number: int
    """Texts per genre."""
    most_tokens: int
    temperature: float
    top_p: float
    seed: int


def write_samples(
    loaded: LoadedModel,
    genres: Sequence[str],
    options: SampleOptions,
    workers: int = 1,
) -> dict[str, Any]:
    """Texts of each genre, each behind its genre tag (behind nothing where it has none).

    Args:
        workers: genres written at a time, one core each; the texts do not depend on it. On GPUs one genre
            is written on each. Random numbers are drawn on the CPU wherever the model is, so that a text is
            the same function of the seed; its tokens differ where two are so nearly alike likely that the
            last digits of the devices' sums decide.

    Returns:
        {genre: [{"text", "tokens", "ended", "distinct_2"}]} and the settings; `ended` is whether the model
        closed the text itself, `distinct_2` the share of its character pairs that are different.
    """
    chosen = list(genres) if options.number else []
    torch.set_num_threads(1)
    texts = loaded.map(lambda i: _texts(loaded, i, chosen[i], options), range(len(chosen)), workers)
    return {"settings": asdict(options), "genres": dict(zip(chosen, texts, strict=True))}


def _texts(loaded: LoadedModel, number: int, genre: str, options: SampleOptions) -> list[dict[str, Any]]:
    """The texts of one genre, the `number`-th."""
    tag = loaded.symbols.tag(genre)
    prompt = [loaded.symbols.bos] + ([] if tag is None else [tag])
    draws = torch.Generator().manual_seed(int(generator_for(options.seed, genre).integers(2**62)))
    written = generate(
        loaded.writer(number),
        [prompt] * options.number,
        eos=loaded.symbols.eos,
        generator=draws,
        max_new_tokens=options.most_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        forbidden=_unwritten(loaded),
    )
    return [_described(loaded, ids, len(ids) < options.most_tokens) for ids in written]


_NO_TEXT = re.compile(r"<\|.*\|>|<unk>|<0x[0-9A-F]{2}>")
"""Control tokens, tags, and bytes: a sampler rarely draws all bytes of a character, and half of one is no
text."""


def _unwritten(loaded: LoadedModel) -> list[int]:
    """Ids that are never drawn: no text, or rows of the embedding that no token has."""
    names = loaded.tokenizer.get_vocab()
    chosen = {i for name, i in names.items() if _NO_TEXT.fullmatch(name)}
    chosen |= set(range(loaded.model.config.vocab_size)) - set(names.values())
    return sorted(chosen - {loaded.symbols.eos})


def _described(loaded: LoadedModel, ids: Sequence[int], ended: bool) -> dict[str, Any]:
    text = text_of(loaded.tokenizer, ids, ended)
    return {"text": text, "tokens": len(ids), "ended": ended, "distinct_2": distinct_pairs(text)}


def text_of(tokenizer: Tokenizer, ids: Sequence[int], ended: bool) -> str:
    """Return what tokens say, without half a character at the end of a text that was cut."""
    text = tokenizer.decode(list(ids)).strip()
    return text if ended else text.rstrip("\ufffd")


def distinct_pairs(text: str) -> float | None:
    """The share of neighbouring character pairs that are different from each other; None below two."""
    pairs = [text[i : i + 2] for i in range(len(text) - 1)]
    return round(len(set(pairs)) / len(pairs), 4) if pairs else None
