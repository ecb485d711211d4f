"""The command line of `yanmo generate`."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from yanmo.common.answers import answer, only_answers
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import DataError, ExitCode, UsageError
from yanmo.common.logs import setup
from yanmo.common.words import visible
from yanmo.options.command_line import load_given
from yanmo.options.fields import default_argv
from yanmo.store.opening import store_of
from yanmo.tools.generate.options import GenerateOptions
from yanmo.verse.forms import known_forms

if TYPE_CHECKING:
    from yanmo.tools.generate.writing_session import WritingSession

log = logging.getLogger(__name__)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters but tab and line break: no training text holds one (`yanmo curate` takes them out)."""


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
    # The prompt first: what is wrong with it is said before torch is loaded.
    text = options.prompt if "prompt" in given and options.prompt != "-" else _stdin(options.prompt)
    text = clean(text)
    _write(_session(options, given), text)


def _stdin(prompt: str) -> str:
    if prompt != "-" and sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("PROMPT is missing: expected a text to go on from; - reads it from stdin")
    data = sys.stdin.buffer.read() if sys.stdin else b""
    try:
        return data.decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"stdin: expected text in UTF-8: {error}") from error


def clean(text: str) -> str:
    """Return a prompt with line breaks as the training text has them.

    Raises:
        DataError: it holds a control character, or half of a character beyond U+FFFF.
    """
    text = text.replace("\r\n", "\n")
    if found := _CONTROL.search(text):
        raise DataError(
            f"the prompt: holds the control character U+{ord(found[0]):04X} at character "
            f"{found.start() + 1}, which no model has read in training; take it out"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"the prompt: character {error.start + 1} is half of one (a lone surrogate); write it whole"
        ) from error
    return text


def _session(options: GenerateOptions, given: frozenset[str]) -> WritingSession:
    from yanmo.tools.generate.named_model import is_folder, open_model
    from yanmo.tools.generate.writing_session import WritingSession

    store = None if is_folder(options.model) else store_of(options)
    with only_answers():
        model = open_model(store, options.model, options.channel, options.device, options.precision)
    session = WritingSession(model, options, given)
    log.info("model=%s seed=%d device=%s", model.name, session.seed, model.writer.device)
    return session


def _write(session: WritingSession, prompt: str) -> None:
    """Show one text as it is written; several one after another, with an empty line between."""
    ids = session.ids_of(prompt)
    begin = "" if session.options.chat else prompt
    streams = [session.streamed(ids, sample) for sample in range(session.options.samples)]
    if len(streams) == 1:
        _show(begin)
        for _ in session.write(streams):
            _show(streams[0].go_on())
        _show("\n")
        return
    shown = 0
    for live in session.write(streams):
        for streamed in live:
            streamed.go_on()
        while shown < len(streams) and streams[shown].written.finish:
            _show(("\n" if shown else "") + begin + streams[shown].told + "\n")
            shown += 1


def _show(text: str) -> None:
    """Write a piece of a text to stdout, at once, without what would steer a terminal."""
    sys.stdout.write(visible(text))
    sys.stdout.flush()


if __name__ == "__main__":
    as_process(main)
