"""Bits per character of a model on texts, by transformers and tokenizers alone: a second opinion.

No code of ours: what is scored is the folder that anybody would load. Texts are cut into windows of the
model's context, each of which begins with <|bos|>; every character's bits count, and are divided by the
characters that are no white space.
"""

from __future__ import annotations

import importlib
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_T_99 = {3: 4.541, 4: 3.747, 5: 3.365, 6: 3.143, 7: 2.998}
"""Degrees of freedom -> the 99th percentile of Student's t."""


def bits_per_character(folder: Path, texts: Sequence[str]) -> float:
    """Mean over the characters of all texts.

    Args:
        folder: a model in Hugging Face's format, with its tokenizer.
    """
    import torch
    from tokenizers import Tokenizer

    transformers = importlib.import_module("transformers")  # an extra: whoever asks for this has it
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)

    tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    begin, end = tokenizer.token_to_id("<|bos|>"), tokenizer.token_to_id("<|eos|>")
    window = model.config.max_position_embeddings - 1
    nats, characters = 0.0, 0
    with torch.inference_mode():
        for text in texts:
            ids = [*tokenizer.encode(text, add_special_tokens=False).ids, end]
            for start in range(0, len(ids), window):
                piece = torch.tensor([[begin, *ids[start : start + window]]])
                logits = model(piece[:, :-1]).logits.double()
                nats += float(torch.nn.functional.cross_entropy(logits[0], piece[0, 1:], reduction="sum"))
            characters += sum(not character.isspace() for character in text)
    return nats / math.log(2) / characters


def allowed(seeds_bits: Sequence[float]) -> float:
    """By how many bits per character a new champion may be worse before more than the seed is shown.

    The difference of two models that differ by nothing but the seed is larger in one case of a hundred.

    Args:
        seeds_bits: of 4 to 8 models that differ by their seed.
    """
    spread = statistics.stdev(seeds_bits) * math.sqrt(2 * (1 + 1 / len(seeds_bits)))
    return _T_99[len(seeds_bits) - 1] * spread
