"""`yanmo generate` beside transformers' `generate`, the same model on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.declared import Benchmark, Group, Place
from bench.rounds import seconds

_BATCHES = (1, 16)


@contextmanager
def opened(place: Place) -> Iterator[list[Group]]:
    """The champion of the store, in both."""
    import torch
    from generate import DRAWN, GREEDY, PROMPT, ours, theirs
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from yanmo.model.generation.writer import Writer
    from yanmo.model.hf_export import load
    from yanmo.store.opening import open_store
    from yanmo.store.output import open_reference
    from yanmo.store.pointers import read_pointer

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    store = open_store(place.store)
    pointer = read_pointer(store, place.channel, "champion")
    assert pointer is not None, "the command looked for it"
    folder = open_reference(store, pointer).path("config.json").parent
    model = load(folder).model
    writer, peer = Writer(model), AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens, size = model.config.max_position_embeddings - PROMPT, model.config.vocab_size
    groups = []
    for batch in _BATCHES:
        generator = torch.Generator().manual_seed(batch)
        prompts = torch.randint(size // 2, size, (batch, PROMPT), generator=generator).tolist()
        for choice, title in ((GREEDY, "the likeliest token"), (DRAWN, "drawn")):
            chinese = "取最可能的词元" if choice is GREEDY else "抽样"
            written = batch * tokens

            def speed(write: Callable[[], object], written: int = written) -> Callable[[], float]:
                return lambda: written / seconds(write)

            def of_ours(prompts: list[list[int]] = prompts, choice: object = choice) -> object:
                return ours(writer, prompts, tokens, choice)

            def of_theirs(prompts: list[list[int]] = prompts, choice: object = choice) -> object:
                return theirs(peer, prompts, tokens, choice)

            groups.append(
                Group(
                    (f"{batch} at a time, {title}", f"每次 {batch} 篇，{chinese}"),
                    {"yanmo generate": speed(of_ours), "transformers": speed(of_theirs)},
                )
            )
    yield groups


BENCHMARK = Benchmark(
    name="generation",
    title=("Writing", "写作"),
    unit=("tokens per second", "每秒词元数"),
    about=(
        "The champion of the store, fp32, one thread, from prompts of eight tokens to the end of its "
        "context. "
        "The likeliest token, or drawn with temperature 0.8 and top-p 0.95.",
        "存储里的冠军模型，fp32，单线程，从八个词元的开头写到上下文用尽。取最可能的词元，或以温度 0.8"
        "、top-p 0.95 抽样。",
    ),
    open=opened,
    needs_store=True,
    minutes=1,
)
