"""Scoring of texts, beside lm-evaluation-harness with the same model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.declared import Benchmark, Group, Place
from bench.rounds import cpu_seconds

_DOCUMENTS = 10
_BATCHES = ("1", "16", "auto")


@contextmanager
def opened(place: Place) -> Iterator[list[Group]]:
    """The newest model of the store, some texts of its test split, and halves of them."""
    import evaluate
    import torch

    from yanmo.evaluate.bits.of_documents import load_model
    from yanmo.evaluate.documents.budget import first_of_each_genre
    from yanmo.evaluate.documents.reading import read_split
    from yanmo.store.opening import open_store
    from yanmo.store.output import open_reference
    from yanmo.store.pointers import read_pointer

    torch.set_num_threads(1)
    store = open_store(place.store)
    pointers = [read_pointer(store, place.channel, name) for name in ("champion", "evaluation_set")]
    output, texts_of = (open_reference(store, pointer) for pointer in pointers if pointer is not None)
    loaded = load_model(output)
    folder, context = str(output.path("config.json").parent), loaded.model.config.max_position_embeddings
    texts = [d.text for d in first_of_each_genre(read_split(texts_of, "test"), _DOCUMENTS)]
    pairs = evaluate.halves(loaded, texts, context)
    whole, halves = sum(map(len, texts)), sum(len(second) for _, second in pairs)
    rolling = {
        "yanmo, windows overlap": lambda: whole / cpu_seconds(lambda: evaluate.rolling(loaded, texts, 1)),
        "yanmo, without overlap": lambda: (
            whole / cpu_seconds(lambda: evaluate.rolling(loaded, texts, 1, context))
        ),
    }
    answers = {"yanmo": lambda: halves / cpu_seconds(lambda: evaluate.answers(loaded, pairs, 1))}
    for batch in _BATCHES:
        roll, answer = evaluate.harness(folder, context, batch)
        name = f"lm-evaluation-harness, batch {batch}"
        rolling[name] = lambda roll=roll: whole / cpu_seconds(lambda: roll(texts))
        answers[name] = lambda answer=answer: halves / cpu_seconds(lambda: answer(pairs))
    yield [
        Group(("Answers: the same windows in both", "回答：两边窗口相同"), answers),
        Group(("Whole texts", "整篇"), rolling),
    ]


BENCHMARK = Benchmark(
    name="evaluation",
    title=("Evaluation", "评估"),
    unit=("characters per CPU second", "每 CPU 秒字数"),
    about=(
        "The champion of the store and ten test texts of each genre, one thread. Answers: the latter half of "
        "each text behind its first half. Whole texts: the windows of lm-evaluation-harness do not overlap; "
        "ours do, and so read a long text twice, unless told otherwise.",
        "仓库中的冠军模型，每种体裁十篇测试文字，单线程。回答：给出前一半，评后一半。整篇：lm-evaluat"
        "ion-harness 的窗口互不重叠；我们的窗口重叠，长文要读两遍，除非另行指定。",
    ),
    open=opened,
    packages=("lm-eval==0.4.13", "accelerate==1.15.0"),
    needs_store=True,
    rounds=6,
    minutes=9,
)
