"""How fast `yanmo generate` writes, beside `generate` of transformers, with the same model on a CPU.

    python benchmarks/generate.py FOLDER --batch 1 16

Both take the likeliest tokens, or draw with temperature 0.8 and top-p 0.95 (--draw), from prompts of eight
tokens, without an end mark, in turn, as often as asked. Printed are medians, their ratio, the least and the
largest ratio of neighbouring runs, the ratio of processor-seconds, the machine's load, and, where the
likeliest are taken, how many of the texts are the same. The texts fill the model's context, or have --tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from yanmo.model.generation.choosing import Choice
from yanmo.model.generation.draws import own_draws
from yanmo.model.generation.writer import Writer
from yanmo.model.generation.writing import Text, write
from yanmo.model.hf_export import load

PROMPT = 8
GREEDY, DRAWN = Choice(temperature=0), Choice(temperature=0.8, top_p=0.95)
Texts = list[list[int]]


def ours(writer: Writer, prompts: Texts, tokens: int, choice: Choice) -> Texts:
    """What Yanmo writes."""
    texts = [Text(p, own_draws(0, i), frozenset(), tokens) for i, p in enumerate(prompts)]
    for _ in write(writer, texts, choice, at_once=len(texts)):
        pass
    return [text.new for text in texts]


def theirs(model: torch.nn.Module, prompts: Texts, tokens: int, choice: Choice) -> Texts:
    """What transformers writes."""
    ids = torch.tensor(prompts)
    how = {"temperature": choice.temperature, "top_p": choice.top_p, "top_k": 0, "do_sample": True}
    if choice.is_greedy:
        how = {"do_sample": False, "temperature": None, "top_p": None}
    found = model.generate(  # type: ignore[operator]
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        eos_token_id=None,
        **how,
    )
    return list(found[:, PROMPT:].tolist())


def timed(write_texts: Callable[[], Texts]) -> tuple[float, float, Texts]:
    """Seconds that it took, seconds of processors, and what was written."""
    began, busy = time.perf_counter(), time.process_time()
    found = write_texts()
    return time.perf_counter() - began, time.process_time() - busy, found


def main() -> None:
    """Measure, and print a line of JSON for each number of texts."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder", type=Path, help="a model in Hugging Face's layout")
    asked.add_argument("--batch", type=int, nargs="+", default=[1, 16], help="texts at a time")
    asked.add_argument("--tokens", type=int, default=0, help="tokens of a text; 0 fills the context")
    asked.add_argument("--repeats", type=int, default=9)
    asked.add_argument("--threads", type=int, default=2)
    asked.add_argument("--draw", action="store_true", help="draw instead of taking the likeliest")
    given = asked.parse_args()
    torch.set_num_threads(given.threads)
    transformers_logging.set_verbosity_error()
    loaded = load(given.folder)
    writer = Writer(loaded.model)
    peer = AutoModelForCausalLM.from_pretrained(given.folder, dtype=torch.float32).eval()
    tokens = given.tokens or loaded.model.config.max_position_embeddings - PROMPT
    choice = DRAWN if given.draw else GREEDY
    for batch in given.batch:
        generator = torch.Generator().manual_seed(batch)
        size = loaded.model.config.vocab_size
        prompts = torch.randint(size // 2, size, (batch, PROMPT), generator=generator).tolist()
        runs: list[tuple[float, float, float]] = []
        for repeat in range(given.repeats + 1):  # the first warms up
            own, own_busy, mine = timed(lambda: ours(writer, prompts, tokens, choice))  # noqa: B023
            other, her_busy, hers = timed(lambda: theirs(peer, prompts, tokens, choice))  # noqa: B023
            runs += [(own, other, her_busy / own_busy)] if repeat else []
        seconds, hers_seconds, busy = (statistics.median(each) for each in zip(*runs, strict=True))
        ratios = sorted(other / own for own, other, _ in runs)
        line = {
            "parameters": sum(p.numel() for p in loaded.model.parameters()),
            "batch": batch,
            "tokens": tokens,
            "chosen": "drawn" if given.draw else "likeliest",
            "threads": given.threads,
            "repeats": given.repeats,
            "yanmo_tokens_per_second": round(batch * tokens / seconds, 1),
            "transformers_tokens_per_second": round(batch * tokens / hers_seconds, 1),
            "ratio": round(hers_seconds / seconds, 2),
            "ratios": [round(ratios[0], 2), round(ratios[-1], 2)],
            "ratio_of_processor_seconds": round(busy, 2),
            "same_texts": None if given.draw else sum(a == b for a, b in zip(mine, hers, strict=True)),
            "load": round(os.getloadavg()[0], 1),
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
