"""Answers to the prompts of a file, as JSONL in the order of the prompts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence

from yanmo.common.logs import Progress
from yanmo.formats.chat_tokens import Turn
from yanmo.tools.generate.prompts import Prompt
from yanmo.tools.generate.spelling import Streamed
from yanmo.tools.generate.writing_session import WritingSession

log = logging.getLogger(__name__)


def answered(session: WritingSession, prompts: Sequence[Prompt]) -> Iterator[str]:
    """A line of JSON for each prompt: its record, its seed, and `completions`.

    Raises:
        DataError: a prompt does not fit, or cannot be encoded; before the first answer.
    """
    ids = [ids_of(session, prompt) for prompt in prompts]
    seeds = [session.seed if prompt.seed is None else prompt.seed for prompt in prompts]
    samples = session.options.samples
    streams: list[list[Streamed]] = [[] for _ in prompts]

    def each() -> Iterator[Streamed]:
        for at, prompt in enumerate(prompts):
            answers = bool(prompt.turns) or session.options.chat
            for sample in range(samples):
                streams[at].append(session.streamed(ids[at], seeds[at], sample, answers=answers))
                yield streams[at][-1]

    done, progress = 0, Progress(log, "answered", len(prompts), unit="prompts")
    for live in session.write(each()):
        for streamed in live:
            streamed.go_on()
        while done < len(prompts) and len(streams[done]) == samples and _have_ended(streams[done]):
            yield _line(prompts[done], seeds[done], streams[done])
            streams[done], done = [], done + 1
            progress.add()


def ids_of(session: WritingSession, prompt: Prompt) -> list[int]:
    """What the model reads of a prompt.

    Raises:
        DataError: it does not fit, or the tokenizer loses something of it.
    """
    options, turns = session.options, list(prompt.turns)
    if options.chat and not turns:
        turns = [Turn("user", prompt.text)]
    if turns and options.system and turns[0].role != "system":
        turns.insert(0, Turn("system", options.system))
    if turns:
        ids = session.model.ids_of_turns(turns)
    else:
        ids = session.model.ids_of(prompt.text, session.genre, prompt.where)
    session.check_room(ids, prompt.where, answers=bool(turns))
    return ids


def _have_ended(streams: Sequence[Streamed]) -> bool:
    return all(streamed.written.finish for streamed in streams)


def _line(prompt: Prompt, seed: int, streams: Sequence[Streamed]) -> str:
    completions = [
        {"text": each.told, "finish_reason": each.written.finish, "tokens": len(each.written.new)}
        for each in streams
    ]
    return json.dumps({**prompt.record, "seed": seed, "completions": completions}, ensure_ascii=False)
