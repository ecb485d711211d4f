"""Chats made from plain documents, one of each, that ask what `evaluate --tasks chat` asks.

    python benchmarks/task_chats.py corpus/small.jsonl.zst --out chats.jsonl

docs/chat.md has the commands that train on them, and the figures.

A document's id decides which question becomes of it: restore the marks, name the genre, find the next line
among four, or write to a title. The words are those of `evaluate`, so a model that was trained on these chats
knows the form of a question; what is measured is whether it knows the answer to ones it has not seen, as
`curate` keeps every run of 13 characters of the evaluation set out of the training text.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

from yanmo.common.bootstrap import generator_for
from yanmo.evaluate.documents.reading import genre_order
from yanmo.evaluate.tasks.asking import question
from yanmo.evaluate.tasks.tasks import LETTERS, Task, begun, without_marks

KINDS = ("punctuation", "genre", "next_line", "compose")


def read(path: Path) -> Iterator[dict[str, Any]]:
    with zstandard.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def lines_of(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def next_line(document: dict[str, Any], seed: int) -> Task | None:
    """A line and four of the same text to choose from; None where it has less than five.

    Lines of other texts would be too easy to tell, and some of these are held out: too short for `curate` to
    find them in a question.
    """
    own, draw = lines_of(document["text"]), generator_for(seed, document["id"])
    if len(own) < 5:
        return None
    at = int(draw.integers(1, len(own)))
    others = [line for i, line in enumerate(own) if i not in (at - 1, at)]
    choices = [*(others[i] for i in draw.choice(len(others), 3, replace=False)), own[at]]
    if len(set(choices)) < 4:
        return None
    return Task("next_line", own[at - 1], own[at], tuple(choices[i] for i in draw.permutation(4)))


def turns(document: dict[str, Any], kind: str, genres: tuple[str, ...], seed: int) -> list[str]:
    """Question and answer; nothing where the document has no answer of this kind."""
    text, genre = document["text"], document["genre"]
    if kind == "compose":
        asked = f"请以《{document['title']}》为题，写一篇{genre}。"
        return [asked, begun(text)] if document.get("title") else []
    if kind == "next_line":
        task = next_line(document, seed)
        return [question(task), LETTERS[task.choices.index(task.answer)]] if task else []
    if kind == "genre":
        return [question(Task(kind, begun(text), genre, genres)), genre]
    shown = without_marks(begun(text))
    return [question(Task(kind, shown, begun(text))), begun(text)] if shown != begun(text) else []


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("documents", type=Path, help="a .jsonl.zst with id, genre, title and text")
    parser.add_argument("--out", type=Path, required=True, help="the .jsonl to write")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    documents = list(read(args.documents))
    genres = tuple(sorted({d["genre"] for d in documents}, key=genre_order))
    made: collections.Counter[str] = collections.Counter()
    with args.out.open("w", encoding="utf-8") as file:
        for document in documents:
            kind = KINDS[int(generator_for(args.seed, f"kind of {document['id']}").integers(len(KINDS)))]
            said = turns(document, kind, genres, args.seed)
            if not said:
                continue
            made[kind] += 1
            messages = [
                {"role": role, "content": text}
                for role, text in zip(("user", "assistant"), said, strict=True)
            ]
            chat = {"id": f"{document['id']}-{kind}", "genre": "chat", "messages": messages}
            file.write(json.dumps(chat, ensure_ascii=False) + "\n")
    print(f"{args.out}: {made.total()} chats, {dict(made)}", file=sys.stderr)


if __name__ == "__main__":
    main()
