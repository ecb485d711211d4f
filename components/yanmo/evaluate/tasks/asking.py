"""How a chat model answers the tasks, which it is asked in words."""

from __future__ import annotations

import functools
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from yanmo.common.errors import DataError
from yanmo.evaluate.document_bits import LoadedModel
from yanmo.evaluate.documents.reading import Document
from yanmo.evaluate.tasks.tasks import LETTERS, Task, choice_metrics, chrf, make_tasks, punctuation_metrics
from yanmo.evaluate.writing.generate import generate
from yanmo.formats.chat_tokens import END, Turn, has_marks, prompt_ids

log = logging.getLogger(__name__)
_MOST_TOKENS = {"punctuation": 192, "genre": 8, "next_line": 8, "chat": 256}
_AT_A_TIME = 64
_SHOWN = 10
"""Answers to chats that are kept with their score."""
T = TypeVar("T")
Ask = Callable[[Sequence[Sequence[Turn]], int], list[str]]
"""(conversations, most tokens of an answer) -> answers."""


def measure_tasks(
    loaded: LoadedModel,
    documents: Sequence[Document],
    *,
    per_genre: int,
    seed: int,
    workers: int,
) -> dict[str, Any]:
    """The metrics of a model's answers.

    Args:
        per_genre: documents of each genre that tasks are made from, and chats that are answered.
        workers: batches of answers at a time, one core each.

    Raises:
        DataError: the tokenizer has no marks.
    """
    tasks = make_tasks(documents, per_genre, seed)
    log.info("tasks: %d", len(tasks))
    if not has_marks(loaded.tokenizer):
        raise DataError(
            f"{loaded.output}: its tokenizer has no {END}, so it is no chat model; leave --tasks out"
        )
    torch.set_num_threads(1)  # threads of each operation: equal sums whatever the number of workers
    ask = functools.partial(answer_all, loaded, workers=workers)
    return {"how": "chat", **_in_words(ask, tasks), **_chats(ask, documents, per_genre)}


def question(task: Task) -> str:
    """Return what a chat model is asked, in characters that `curate` leaves alone: it has seen no others."""
    if task.kind == "punctuation":
        return f"请给下面的文字加上标点，不要改动文字，只回答加好标点的文字。\n{task.text}"
    if task.kind == "genre":
        return f"下面的作品是哪一种体裁？只回答其中之一：{'、'.join(task.choices)}。\n{task.text}"
    options = "\n".join(f"{letter}、{line}" for letter, line in zip(LETTERS, task.choices, strict=True))
    return f"“{task.text}”的下一句是哪一句？只回答一个字母。\n{options}"


def read_choice(task: Task, answer: str) -> str | None:
    """The choice that an answer names and nothing else, a full stop aside; None for any other answer."""
    given = answer.strip().rstrip("。.")
    if task.kind == "genre":
        return given if given in task.choices else None
    return task.choices[LETTERS.index(given)] if len(given) == 1 and given in LETTERS else None


def _in_words(ask: Ask, tasks: Sequence[Task]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in ("punctuation", "genre", "next_line"):
        chosen = [t for t in tasks if t.kind == kind]
        if not chosen:
            continue
        asked = [[Turn("user", question(t))] for t in chosen]
        answers = ask(asked, _MOST_TOKENS[kind])
        if kind == "punctuation":
            found[kind] = punctuation_metrics(chosen, answers)
        else:
            choices = [read_choice(t, a) for t, a in zip(chosen, answers, strict=True)]
            found[kind] = choice_metrics(chosen, choices)
    return found


def _chats(ask: Ask, documents: Sequence[Document], number: int) -> dict[str, Any]:
    """chrF of the answers to the last question of each chat, its own answer being the reference.

    Some are kept to be read: those of the first chats by id, a hash, so that nobody chose them.
    """
    chats = [d.turns for d in documents if d.turns and d.turns[-1].is_answer and len(d.turns) > 1][:number]
    if not chats:
        return {}
    answers = ask([turns[:-1] for turns in chats], _MOST_TOKENS["chat"])
    pairs = [(answer, turns[-1].text) for answer, turns in zip(answers, chats, strict=True)]
    shown = [
        {"asked": turns[-2].text, "answer": answer, "reference": reference}
        for turns, (answer, reference) in zip(chats[:_SHOWN], pairs, strict=False)
    ]
    return {"chat": {"of": len(chats), "chrf": round(chrf(pairs), 2), "answers": shown}}


def answer_all(
    loaded: LoadedModel, asked: Sequence[Sequence[Turn]], most_tokens: int, *, workers: int = 1
) -> list[str]:
    """The likeliest answer to each conversation, up to its end mark; prompts of one length go together."""
    prompts = [prompt_ids(loaded.tokenizer, turns, loaded.symbols.bos) for turns in asked]
    by_length = defaultdict(list)
    for i, prompt in enumerate(prompts):
        by_length[len(prompt)].append(i)
    together = [chosen for rows in by_length.values() for chosen in _cut(rows, _AT_A_TIME)]
    parts = [[prompts[i] for i in chosen] for chosen in together]
    found = loaded.map(lambda i: _answers(loaded, i, parts[i], most_tokens), range(len(parts)), workers)
    answers = [""] * len(asked)
    for chosen, answered in zip(together, found, strict=True):
        for i, text in zip(chosen, answered, strict=True):
            answers[i] = text
    return answers


def _answers(
    loaded: LoadedModel, number: int, prompts: Sequence[Sequence[int]], most_tokens: int
) -> list[str]:
    """The answers to prompts of one length, the `number`-th of them."""
    end = loaded.tokenizer.token_to_id(END)
    assert end is not None  # or prompt_ids would have raised
    written = generate(
        loaded.writer(number),
        prompts,
        eos=end,
        generator=torch.Generator().manual_seed(0),
        max_new_tokens=most_tokens,
        temperature=0.0,
    )
    return [loaded.tokenizer.decode(ids) for ids in written]


def _cut(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[i : i + size] for i in range(0, len(items), size)]
