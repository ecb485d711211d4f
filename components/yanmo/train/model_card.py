"""The README.md that goes with a model."""

from __future__ import annotations

from typing import Any

from yanmo.common.store.output import Output
from yanmo.train.config import TrainConfig

_CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
language: [zh, lzh]
---
# A Chinese language model trained by Yanmo

A Qwen3-type decoder ({parameters:.2f} M parameters, {layers} layers, width {width}), trained for {steps}
steps on {tokens:.2f} M tokens with a context of {context} tokens. It continues texts.

    from transformers import AutoModelForCausalLM, AutoTokenizer
    model, tokenizer = AutoModelForCausalLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")

A text begins with `<|bos|>` (id 0); the tag of a genre may follow it (genres.json), for which half of the
training documents were shown theirs. A text ends with `<|eos|>` (id 1).

## Validation, bits per character (without tags, ends of text included)

{table}

## Made from

Token cache `{cache}`, content digest `{digest}`. All options are in config.yaml, the course of
the training in metrics.jsonl.
"""


def model_card(options: TrainConfig, result: dict[str, Any], valid: dict[str, float], cache: Output) -> str:
    """The card's text.

    Args:
        result: what the workers said of the finished model.
        valid: genre -> bits per character.
    """
    rows = [f"| {genre} | {bits:.3f} |" for genre, bits in valid.items()]
    table = "\n".join(["| genre | bits per character |", "|---|---|", *rows]) if rows else "Not measured."
    return _CARD.format(
        parameters=result["parameters"] / 1e6,
        layers=options.layers,
        width=options.width,
        steps=result["steps"],
        tokens=result["tokens"] / 1e6,
        context=options.context,
        table=table,
        cache=cache,
        digest=cache.content_digest[:16],
    )
