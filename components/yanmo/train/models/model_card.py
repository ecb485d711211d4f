"""The README.md that goes with a model."""

from __future__ import annotations

from typing import Any

from yanmo.common.errors import DataError
from yanmo.store.output import Output
from yanmo.train.config import TrainConfig

_CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
language: [zh, lzh]
---
# A Chinese language model trained by Yanmo

A {kind}-type decoder ({parameters:.2f} M parameters, {layers} layers, width {width}), trained for {steps}
steps on {tokens:.2f} M tokens with a context of {context} tokens. It continues texts.{base}

    from transformers import AutoModelForCausalLM, AutoTokenizer
    model, tokenizer = AutoModelForCausalLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")

{marks}

## Validation, bits per character (without tags, ends of text included)

{table}

## Made from

Token cache `{cache}`, content digest `{digest}`. In the store config.yaml beside it has all options,
and metrics.jsonl the metrics of the training. Licences of the training text, by documents: {licenses}.
"""
_MARKS = """\
A text begins with `{begin}`; the tag of a genre may follow it (genres.json), as it did in
{tagged:.0f} % of the training documents. A text ends with `{end}`."""
_WHOLE = " It goes on\nfrom `{base}`, whose own licence holds too."
_ADAPTED = """ It is
`{base}`, whose own licence holds too, with what LoRA of rank {rank} added: {trained:.2f} M parameters were
trained, and `adapter/` has them alone."""


def model_card(
    options: TrainConfig,
    result: dict[str, Any],
    valid: dict[str, float | None],
    cache: Output,
    base: Output | None = None,
    marks: tuple[str, str] = ("<|bos|>", "<|eos|>"),
    *,
    has_tags: bool = True,
) -> str:
    """Return the card's text.

    Args:
        result: what the workers reported about the finished model, and its shape (layers, width).
        valid: genre -> bits per character; None where they were not finite.
        base: the model that it was trained from.
        marks: what a text begins and ends with.
        has_tags: whether genres have tags.
    """
    rows = [f"| {genre} | {_shown(bits)} |" for genre, bits in valid.items()]
    table = "\n".join(["| genre | bits per character |", "|---|---|", *rows]) if rows else "Not measured."
    return _CARD.format(
        kind=str(result.get("model_type", "qwen3")).capitalize(),
        parameters=result["parameters"] / 1e6,
        layers=result["layers"],
        width=result["width"],
        steps=result["steps"],
        tokens=result["tokens"] / 1e6,
        context=options.context,
        table=table,
        cache=cache,
        digest=cache.content_digest[:16],
        base=_base(options, result, base),
        marks=_marks(options, marks, has_tags),
        licenses=licenses_of(cache),
    )


def _base(options: TrainConfig, result: dict[str, Any], base: Output | None) -> str:
    if base is None:
        return ""
    name = f"train/{base.manifest.key}"
    if not options.lora_rank:
        return _WHOLE.format(base=name)
    return _ADAPTED.format(base=name, rank=options.lora_rank, trained=result["trained_parameters"] / 1e6)


def _marks(options: TrainConfig, marks: tuple[str, str], has_tags: bool) -> str:
    begin, end = marks
    if not has_tags:
        return f"A text begins with `{begin}` and ends with `{end}`."
    return _MARKS.format(begin=begin, end=end, tagged=100 * options.tag_share)


def _shown(bits: float | None) -> str:
    return "not finite" if bits is None else f"{bits:.3f}"


def licenses_of(cache: Output) -> str:
    """Return the licences that `curate` counted in the documents a token cache was made from, in words."""
    output: Output | None = cache
    while output is not None:
        counts = output.manifest.metadata.get("licenses")
        if counts:
            return ", ".join(f"{name or 'none given'} {count:,}" for name, count in sorted(counts.items()))
        try:
            output = output.input("documents")
        except DataError:  # deleted since then: no reason to lose the model
            break
    return "not known"
