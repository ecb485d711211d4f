"""`yanmo generate` beside transformers' `generate`, the same model on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.declared import Benchmark, Group, Place
from bench.rounds import seconds

_BATCHES, _PROMPT = (1, 16), 8
Texts = list[list[int]]


@contextmanager
def opened(place: Place) -> Iterator[list[Group]]:
    """The champion of the store, in both."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from yanmo.model.generation.choosing import Choice
    from yanmo.model.generation.writer import Writer
    from yanmo.model.hf_export import load
    from yanmo.store.opening import open_store
    from yanmo.store.output import open_reference
    from yanmo.store.pointers import read_pointer

    greedy, drawn = Choice(temperature=0), Choice(temperature=0.8, top_p=0.95)
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    store = open_store(place.store)
    pointer = read_pointer(store, place.channel, "champion")
    assert pointer is not None, "the command looked for it"
    folder = open_reference(store, pointer).path("config.json").parent
    model = load(folder).model
    writer, peer = Writer(model), AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens, size = model.config.max_position_embeddings - _PROMPT, model.config.vocab_size
    groups = []
    for batch in _BATCHES:
        generator = torch.Generator().manual_seed(batch)
        prompts = torch.randint(size // 2, size, (batch, _PROMPT), generator=generator).tolist()
        for choice, title in ((greedy, "the likeliest token"), (drawn, "drawn")):
            chinese = "取最可能的词元" if choice is greedy else "抽样"
            written = batch * tokens

            def speed(write: Callable[[], object], written: int = written) -> Callable[[], float]:
                return lambda: written / seconds(write)

            def of_ours(prompts: list[list[int]] = prompts, choice: object = choice) -> object:
                return _ours(writer, prompts, tokens, choice)

            def of_theirs(prompts: list[list[int]] = prompts, choice: object = choice) -> object:
                return _theirs(peer, prompts, tokens, choice)

            groups.append(
                Group(
                    (f"{batch} at a time, {title}", f"每次 {batch} 篇，{chinese}"),
                    {"yanmo generate": speed(of_ours), "transformers": speed(of_theirs)},
                )
            )
    yield groups


def _ours(writer: Any, prompts: Texts, tokens: int, choice: Any) -> Texts:
    """What Yanmo writes."""
    from yanmo.model.generation.choosing import own_draws
    from yanmo.model.generation.writing import Text, write

    texts = [Text(p, own_draws(0, i), frozenset(), tokens) for i, p in enumerate(prompts)]
    for _ in write(writer, texts, choice, at_once=len(texts)):
        pass
    return [text.new for text in texts]


def _theirs(model: Any, prompts: Texts, tokens: int, choice: Any) -> Texts:
    """What transformers writes."""
    import torch

    ids = torch.tensor(prompts)
    how = {"temperature": choice.temperature, "top_p": choice.top_p, "top_k": 0, "do_sample": True}
    if choice.is_greedy:
        how = {"do_sample": False, "temperature": None, "top_p": None}
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        eos_token_id=None,
        **how,
    )
    return list(found[:, _PROMPT:].tolist())


BENCHMARK = Benchmark(
    name="generation",
    title=("Writing", "写作"),
    unit=("tokens per second", "每秒词元数"),
    about=(
        "the champion, fp32, one thread, from prompts of eight tokens to the end of its context; drawn with "
        "temperature 0.8 and top-p 0.95.",
        "冠军模型，fp32，单线程，从八个词元写到上下文用尽；抽样的温度 0.8、top-p 0.95。",
    ),
    open=opened,
    needs_store=True,
    minutes=1,
)
