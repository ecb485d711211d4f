"""The command line of `yanmo generate`."""

from __future__ import annotations

import logging
import os
import sys
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from yanmo.common.answers import answer, only_answers, visible
from yanmo.common.command_end import ended
from yanmo.common.errors import ExitCode, UsageError, naming
from yanmo.common.logs import setup
from yanmo.options.command_line import load_given
from yanmo.options.fields import default_argv
from yanmo.store.opening import store_of
from yanmo.tools.generate.options import GenerateOptions
from yanmo.tools.generate.prompts import Prompt, clean, read_prompts
from yanmo.verse.forms import known_forms

if TYPE_CHECKING:
    from yanmo.tools.generate.writing_session import WritingSession

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Write what is asked for; returns the exit code."""

    def serve() -> int:
        options, given = load_given(GenerateOptions, default_argv(argv), "yanmo generate")
        setup(options.log_level, "generate", options.log_format)
        _run(options, given)
        return ExitCode.DONE

    return ended("generate", serve)


def _run(options: GenerateOptions, given: frozenset[str]) -> None:
    if options.form == "list":
        for name, lines in known_forms():
            answer(f"{name} {lines}")
        return
    # Prompts first: what is wrong with one is said before torch is loaded.
    prompts = read_prompts(Path(options.prompts)) if options.prompts else []
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    is_asking = not options.prompts and "prompt" not in given and is_terminal
    if not prompts and not is_asking:
        text = options.prompt
        if text == "-" or "prompt" not in given:
            text = _stdin()
        prompts = [Prompt("the prompt", clean(text, "the prompt"), record={"prompt": text})]
    session = _session(options, given)
    if is_asking:
        from yanmo.tools.generate.conversation import talk

        log.info("%s; /help says more", session.model.name)
        talk(session)
    elif options.prompts:
        from yanmo.tools.generate.answers_file import answered

        _write(answered(session, prompts), options.out)
    else:
        _one(session, prompts[0])


def _stdin() -> str:
    data = sys.stdin.buffer.read() if sys.stdin else b""
    try:
        return data.decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"stdin: expected text in UTF-8: {error}") from error


def _session(options: GenerateOptions, given: frozenset[str]) -> WritingSession:
    from yanmo.tools.generate.named_model import is_folder, open_model
    from yanmo.tools.generate.writing_session import WritingSession

    store = None if is_folder(options.model) else store_of(options)
    with only_answers():
        model = open_model(store, options.model, options.channel, options.device, options.precision)
    session = WritingSession(model, options, given)
    log.info("model=%s seed=%d device=%s", model.name, session.seed, model.writer.device)
    return session


def _one(session: WritingSession, prompt: Prompt) -> None:
    """One prompt: its text as it is written; of several, one after another, with an empty line between."""
    from yanmo.tools.generate.answers_file import ids_of
    from yanmo.tools.generate.conversation import show

    ids, options = ids_of(session, prompt), session.options
    streams = [
        session.streamed(ids, session.seed, sample, answers=options.chat) for sample in range(options.samples)
    ]
    begin = "" if options.chat else prompt.text
    if len(streams) == 1:
        show(begin)
        for piece in session.stream(streams[0]):
            show(piece)
        show("\n")
        return
    shown = 0
    for live in session.write(streams):
        for streamed in live:
            streamed.go_on()
        while shown < len(streams) and streams[shown].written.finish:
            show(("\n" if shown else "") + begin + streams[shown].told + "\n")
            shown += 1


def _write(lines: Iterable[str], out: str) -> None:
    """Lines to stdout as they come, or all of them to a file, which is there whole or not at all."""
    if not out:
        for line in lines:
            sys.stdout.write(visible(line) + "\n")
            sys.stdout.flush()
        return
    path = Path(os.path.realpath(out))
    temporary = path.with_name(f".yanmo-{uuid.uuid4().hex}")
    try:
        with temporary.open("x", encoding="utf-8", newline="") as file, naming(path):
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
