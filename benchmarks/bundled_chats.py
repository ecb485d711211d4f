"""The bundled chats, corpus/chats.jsonl.zst, from a larger collection of the same kind.

    python benchmarks/bundled_chats.py instruct_pd.jsonl.zst --out corpus/chats.jsonl.zst

The collection: one chat a line with its `task` (punctuate, genre, continue, compose), all made by template
from works in the public domain (corpus/README.md has the sources). What is taken is what a model of some
million parameters and a context of 256 tokens may learn: short chats, so many of each kind, the first by id
(a hash).

- Questions are in the words of `yanmo evaluate --tasks chat`, so that a model knows the form of what it is
  asked.
- `next_line` is made of the regular poems among them: a couplet, and four to choose from, of poems of one
  metre.
- No chat shares a run of 13 Han characters with corpus/small.jsonl.zst. A base model that was trained on that
  corpus has read none of the answers, so what is held out here is held out from it as well.
"""

from __future__ import annotations

import argparse
import collections
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

from yanmo.common.bootstrap import generator_for
from yanmo.curate.text.normalize import normalize
from yanmo.evaluate.tasks.asking import question
from yanmo.evaluate.tasks.tasks import LETTERS, Task, without_marks

GENRES = ("诗", "词", "文", "赋")
MOST = {"punctuation": 3000, "genre": 1600, "next_line": 1600, "continue": 1600, "compose": 1600}
"""Chats of each kind, at most."""
_LONGEST = 64
"""Characters of a text to punctuate, in whole sentences."""
_LONGEST_CHAT = 170
_RUN = 13
_NOT_HAN = re.compile(r"[^\u4e00-\u9fff]")
Chat = dict[str, Any]


def read(path: Path) -> Iterator[Chat]:
    with zstandard.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def runs_of(text: str) -> set[str]:
    """All runs of 13 Han characters."""
    han = _NOT_HAN.sub("", text)
    return {han[i : i + _RUN] for i in range(len(han) - _RUN + 1)}


def sentences(text: str) -> list[str]:
    return re.findall(r"[^。！？]+[。！？]", text)


def begun(text: str) -> str:
    """Whole sentences up to 64 characters; nothing where the first is longer."""
    kept = ""
    for sentence in sentences(text):
        if len(kept) + len(sentence) > _LONGEST:
            break
        kept += sentence
    return kept


def couplets(chat: Chat) -> list[str]:
    """The couplets of a chat that holds a whole poem in lines of one length; nothing for another."""
    if chat["task"] != "compose" or chat["genre"] != "诗":
        return []
    found = sentences(chat["messages"][1]["content"])
    return found if len({len(each) for each in found}) == 1 and len(found[0]) in (12, 16) else []


def asked(chat: Chat, others: dict[int, list[str]]) -> tuple[str, str, str] | None:
    """Kind, question and answer that a chat becomes; None where it is too long or has none."""
    said, answer = (message["content"] for message in chat["messages"])
    own = couplets(chat)
    draw = generator_for(0, chat["id"])
    if chat["task"] == "punctuate":
        text = begun(answer)
        shown = without_marks(text)
        return ("punctuation", question(Task("punctuation", shown, text)), text) if shown else None
    if chat["task"] == "genre":
        text = said.partition("\n")[2][:96]
        return "genre", question(Task("genre", text, answer, GENRES)), answer
    if own and draw.integers(2):
        at = int(draw.integers(1, len(own)))
        strange = others[len(own[at])]
        choices = [own[at], *(strange[i] for i in draw.choice(len(strange), 3, replace=False))]
        if len({*choices, *own}) < len(own) + 3:
            return None
        task = Task("next_line", own[at - 1], own[at], tuple(choices[i] for i in draw.permutation(4)))
        return "next_line", question(task), LETTERS[task.choices.index(own[at])]
    return (chat["task"], said, answer) if chat["task"] in ("continue", "compose") else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("chats", type=Path, help="the collection, .jsonl.zst")
    parser.add_argument("--corpus", type=Path, default=Path("corpus/small.jsonl.zst"))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    known: set[str] = set()
    for text in normalize([document["text"] for document in read(args.corpus)]).texts:
        known |= runs_of(text)
    chats = sorted(read(args.chats), key=lambda chat: chat["id"])
    others = collections.defaultdict(list)
    for chat in chats:
        for couplet in couplets(chat):
            others[len(couplet)].append(couplet)
    made: collections.Counter[str] = collections.Counter()
    shared = 0
    packed = zstandard.ZstdCompressor(level=19)
    with args.out.open("wb") as raw, packed.stream_writer(raw) as body:
        file = io.TextIOWrapper(body, encoding="utf-8")
        for chat in chats:
            found = asked(chat, others)
            if found is None or sum(map(len, found[1:])) > _LONGEST_CHAT or made[found[0]] == MOST[found[0]]:
                continue
            if any(runs_of(text) & known for text in normalize(list(found[1:])).texts):
                shared += 1
                continue
            made[found[0]] += 1
            messages = [
                {"role": role, "content": text}
                for role, text in zip(("user", "assistant"), found[1:], strict=True)
            ]
            record = {"id": chat["id"], "genre": "chat", "task": found[0], "source": chat["source"]}
            file.write(json.dumps({**record, "messages": messages}, ensure_ascii=False) + "\n")
        file.flush()
    print(f"{args.out}: {made.total()} chats, {dict(made)}; {shared} share a run", file=sys.stderr)


if __name__ == "__main__":
    main()
