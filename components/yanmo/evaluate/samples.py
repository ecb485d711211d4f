"""Texts that the model writes, chosen by seed and not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from yanmo.common.bootstrap import generator_for
from yanmo.evaluate.scoring import LoadedModel
from yanmo.model.generate import generate


def write_samples(
    loaded: LoadedModel,
    genres: Sequence[str],
    *,
    number: int,
    most_tokens: int,
    temperature: float,
    top_p: float,
    seed: int,
) -> dict[str, Any]:
    """`number` texts per genre, each behind its genre tag (behind nothing where it has none).

    Returns:
        {genre: [{"text", "tokens", "ended", "distinct_2"}]} and the settings; `ended` is whether the model
        closed the text itself, `distinct_2` the share of its character pairs that are different.
    """
    settings = {"temperature": temperature, "top_p": top_p, "most_tokens": most_tokens, "seed": seed}
    texts = {
        genre: _texts(loaded, genre, number, most_tokens, temperature, top_p, seed)
        for genre in (genres if number else ())
    }
    return {"settings": settings, "genres": texts}


def _texts(
    loaded: LoadedModel,
    genre: str,
    number: int,
    most_tokens: int,
    temperature: float,
    top_p: float,
    seed: int,
) -> list[dict[str, Any]]:
    tag = loaded.symbols.tag(genre)
    prompt = [loaded.symbols.bos] + ([] if tag is None else [tag])
    draws = torch.Generator().manual_seed(int(generator_for(seed, genre).integers(2**62)))
    written = generate(
        loaded.model,
        [prompt] * number,
        eos=loaded.symbols.eos,
        generator=draws,
        max_new_tokens=most_tokens,
        temperature=temperature,
        top_p=top_p,
        forbidden=_unwritten(loaded),
    )
    return [_described(loaded, ids, len(ids) < most_tokens) for ids in written]


def _unwritten(loaded: LoadedModel) -> list[int]:
    """Ids that are no text: control tokens, tags, and rows of the embedding that no token has."""
    names = loaded.tokenizer.get_vocab()
    control = {i for name, i in names.items() if name.startswith("<|") and name.endswith("|>")}
    control |= {i for name, i in names.items() if name == "<unk>"}
    control |= set(range(loaded.model.config.vocab_size)) - set(names.values())
    return sorted(control - {loaded.symbols.eos})


def _described(loaded: LoadedModel, ids: Sequence[int], ended: bool) -> dict[str, Any]:
    text = loaded.tokenizer.decode(list(ids)).strip()
    return {"text": text, "tokens": len(ids), "ended": ended, "distinct_2": distinct_pairs(text)}


def distinct_pairs(text: str) -> float | None:
    """The share of neighbouring character pairs that are different from each other; None below two."""
    pairs = [text[i : i + 2] for i in range(len(text) - 1)]
    return round(len(set(pairs)) / len(pairs), 4) if pairs else None
