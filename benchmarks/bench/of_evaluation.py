"""Scoring of texts, beside lm-evaluation-harness with the same model."""

from __future__ import annotations

import functools
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.declared import Benchmark, Group, Place, Words
from bench.rounds import seconds
from yanmo.common.control_group import usable_cpus

if TYPE_CHECKING:
    from yanmo.evaluate.document_bits import LoadedModel

Pairs = list[tuple[str, str]]
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
_DOCUMENTS = 10
_BATCHES = ("1", "16", "auto")
_OF_SMALL = ("1", "16")
"""Without `auto`: the harness searches for a batch before each question, which takes minutes with `small`."""
_SMALL = (512, 10, 512)
"""Width, layers and context of `small`."""
_FEWER = 5
"""It gets one text in five."""


@contextmanager
def opened(place: Place) -> Iterator[list[Group]]:
    """The newest model of the store, some texts of its test split, and halves of them."""
    os.environ.update(_OFFLINE, LOGLEVEL="ERROR")  # before the harness is imported
    import torch

    from yanmo.evaluate.document_bits import LoadedModel, load_model
    from yanmo.evaluate.documents.reading import first_of_each_genre, read_split
    from yanmo.model.hf_export import load
    from yanmo.store.opening import open_store
    from yanmo.store.output import open_reference
    from yanmo.store.pointers import read_pointer

    torch.set_num_threads(usable_cpus())  # of the harness's operations; ours compute on one thread each
    store = open_store(place.store)
    pointers = [read_pointer(store, place.channel, name) for name in ("champion", "evaluation_set")]
    output, texts_of = (open_reference(store, pointer) for pointer in pointers if pointer is not None)
    loaded = load_model(output)
    folder = str(output.path("config.json").parent)
    texts = [d.text for d in first_of_each_genre(read_split(texts_of, "test"), _DOCUMENTS)]
    groups = _groups(loaded, folder, texts, ("", ""), _BATCHES)
    folder = _of_shape(output, loaded, *_SMALL)
    few, size = texts[::_FEWER], ("`small`, random weights: ", "`small`，随机权重：")
    model = load(Path(folder)).model
    of_shape = LoadedModel(output, model, loaded.symbols, loaded.tokenizer)
    small = _groups(of_shape, folder, few, size, _OF_SMALL)
    try:
        yield groups + small
    finally:
        shutil.rmtree(folder)


def _groups(
    loaded: LoadedModel, folder: str, texts: list[str], size: Words, batches: Sequence[str]
) -> list[Group]:
    """Three questions to one model, ours and the harness's reading of the same folder."""
    cores, context = usable_cpus(), loaded.model.config.max_position_embeddings
    pairs = _halves(loaded, texts, context)
    asked = _choices(pairs)
    whole, second, short = sum(map(len, texts)), *(sum(len(b) for _, b in x) for x in (pairs, asked))

    def speed(characters: int, work: Callable[[], object]) -> Callable[[], float]:
        return lambda: characters / seconds(work)

    rolling = {
        "yanmo, windows overlap": speed(whole, lambda: _rolling(loaded, texts, cores)),
        "yanmo, without overlap": speed(whole, lambda: _rolling(loaded, texts, cores, context)),
    }
    answers = {"yanmo": speed(second, lambda: _answers(loaded, pairs, cores))}
    choices = {"yanmo": speed(short, lambda: _answers(loaded, asked, cores))}
    for batch in batches:
        roll, answer = _harness(folder, context, batch)
        name = f"lm-evaluation-harness, batch {batch}"
        rolling[name] = speed(whole, functools.partial(roll, texts))
        answers[name] = speed(second, functools.partial(answer, pairs))
        choices[name] = speed(short, functools.partial(answer, asked))
    titles = (
        (("Answers: the same windows in both", "回答：两边窗口相同"), answers),
        (("Four choices behind each text", "每篇之后四个选项"), choices),
        (("Whole texts", "整篇"), rolling),
    )
    return [Group((size[0] + en, size[1] + zh), found) for (en, zh), found in titles]


def _rolling(loaded: LoadedModel, texts: list[str], threads: int, stride: int = 0) -> float:
    """Bits of all texts, without their end: the harness does not score it."""
    import numpy as np

    from yanmo.model.scoring import token_bits

    reads = [np.array(ids[:-1]) for ids in loaded.encode(texts)]
    return float(sum(b.sum() for b in token_bits(loaded.model, reads, stride=stride, threads=threads)))


def _answers(loaded: LoadedModel, pairs: Pairs, threads: int) -> float:
    """Bits of all second halves.

    Both halves are encoded together and cut where the first ends, white space at its end belonging to the
    second, as the harness does.
    """
    import numpy as np

    from yanmo.model.scoring import token_bits

    heads = loaded.encode([first.rstrip() for first, _ in pairs])
    reads = [np.array(ids[:-1]) for ids in loaded.encode([f"{a}{b}" for a, b in pairs])]
    begins = [min(len(head) - 1, len(read) - 1) for head, read in zip(heads, reads, strict=True)]
    counted = [np.arange(1, len(read)) >= begin for read, begin in zip(reads, begins, strict=True)]
    scored = token_bits(
        loaded.model, reads, counted=counted, threads=threads, batch_tokens=loaded.batch_tokens
    )
    return float(sum(bits.sum() for bits in scored))


def _harness(folder: str, context: int, batch: str) -> tuple[Callable[..., float], Callable[..., float]]:
    """The harness's own reading of the same texts, and of the same halves."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = HFLM(
        pretrained=folder, device="cpu", dtype="float32", batch_size=batch, max_length=context,
        add_bos_token=False, prefix_token_id=0,
    )  # fmt: skip

    def roll(texts: list[str]) -> float:
        asked = [Instance("loglikelihood_rolling", {}, (text,), i) for i, text in enumerate(texts)]
        return -float(sum(model.loglikelihood_rolling(asked, disable_tqdm=True))) / math.log(2)

    def answer(pairs: Pairs) -> float:
        asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
        found = model.loglikelihood(asked, disable_tqdm=True)
        return -float(sum(nats for nats, _ in found)) / math.log(2)

    return roll, answer


def _halves(loaded: LoadedModel, texts: list[str], context: int) -> Pairs:
    """First and second half of as much of each text as the context holds."""
    cut = (
        text[: int((context - 8) * len(text) / len(ids))]
        for text, ids in zip(texts, loaded.encode(texts), strict=True)
    )
    return [(text[: len(text) // 2], text[len(text) // 2 :]) for text in cut if len(text) > 3]


def _choices(pairs: Pairs) -> Pairs:
    """Four short answers to each question, its own first."""
    ends = [second[:8] for _, second in pairs]
    return [
        (first, ends[(i + step) % len(ends)]) for i, (first, _) in enumerate(pairs) for step in (0, 1, 2, 3)
    ]


def _of_shape(output: Any, loaded: LoadedModel, width: int, layers: int, context: int) -> str:
    """A folder with a model of random weights and the store's tokenizer."""
    import torch

    from yanmo.model import hf_export
    from yanmo.model.decoder import Decoder, DecoderConfig

    folder = Path(tempfile.mkdtemp())
    config = DecoderConfig(
        vocab_size=loaded.model.config.vocab_size,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=max(1, width // 128),
        head_dim=64,
        intermediate_size=3 * width,
        max_position_embeddings=context,
    )
    model = Decoder(config)
    model.initialize(torch.Generator().manual_seed(0), 1.0, "depth")
    for path in output.path("tokenizer.json").parent.glob("*token*"):
        shutil.copyfile(path, folder / path.name)
    hf_export.save(model, loaded.symbols, folder)
    return str(folder)


BENCHMARK = Benchmark(
    name="evaluation",
    title=("Evaluation", "评测"),
    unit=("characters per second", "每秒字数"),
    about=(
        "the champion and ten test texts of each genre, on all cores. Answers: the latter half of each text "
        "behind its first half. Choices: four answers of eight characters behind each first half. Whole "
        "texts: our windows overlap, those of the harness do not. `small`: random weights, a fifth of the "
        "texts, without `auto`.",
        "冠军模型，每个体裁十篇测试文字，用所有的核。回答：给出前一半，评后一半。选项：每个前一半之后四个"
        "八字的回答。整篇：我们的窗口重叠，harness 的不重叠。`small`：随机权重，五分之一的文字，"
        "不含 `auto`。",
    ),
    open=opened,
    in_chinese={
        "yanmo, windows overlap": "yanmo，窗口重叠",
        "yanmo, without overlap": "yanmo，窗口不重叠",
        **{
            f"lm-evaluation-harness, batch {batch}": f"lm-evaluation-harness，批大小 {batch}"
            for batch in _BATCHES
        },
    },
    packages=("lm-eval==0.4.13", "accelerate==1.15.0"),
    needs_store=True,
    rounds=6,
    minutes=6,
)
