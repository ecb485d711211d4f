"""A person at a terminal and a model: one prompt after another, or a conversation.

The answer comes as it is written. Ctrl-C while it comes stops it, and what came of it stays in the
conversation; at the prompt Ctrl-C drops the line; Ctrl-D ends the program. Lines are edited by readline,
where Python has it.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

from yanmo.common.answers import visible
from yanmo.common.errors import DataError, UsageError, advice
from yanmo.common.words import plural
from yanmo.formats.chat_tokens import Turn
from yanmo.model.generation.writing import STOP
from yanmo.tools.generate.prompts import clean
from yanmo.tools.generate.spelling import Streamed
from yanmo.tools.generate.writing_session import WritingSession

log = logging.getLogger(__name__)
_ASKS = "> "
_GOES_ON = "\\"
"""At the end of a line: the prompt goes on in the next one."""
_COMMANDS = "/clear forgets the conversation, /help shows this; Ctrl-C stops an answer, Ctrl-D ends"
_ROOM = 4
"""A quarter of the context is kept free for an answer, or less, where --max-tokens says so."""


def show(text: str) -> None:
    """Write a piece of an answer to stdout, at once, without what would steer a terminal."""
    sys.stdout.write(visible(text))
    sys.stdout.flush()


def asked_line() -> str:
    """A line that the person types.

    Raises:
        EOFError: there is no more.
    """
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # `input` edits lines by it
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.removesuffix("\n")
    # stdout is for answers alone: file descriptor 1 leads to stderr (yanmo.common.answers), and only a
    # stdout that is descriptor 1 makes Python call readline.
    with open(1, "w", closefd=False) as terminal, contextlib.redirect_stdout(terminal):
        return input(_ASKS)


def talk(session: WritingSession, ask: Callable[[], str] = asked_line) -> None:
    """Ask for prompts and write answers until there are no more."""
    turns = _Turns(session)
    while True:
        try:
            text = _whole(ask)
            if text.strip() == "/help":
                log.info("%s", _COMMANDS)
            elif text.strip() == "/clear":
                turns.forget()
            elif text.strip():
                turns.answer(text)
        except EOFError:
            return
        except KeyboardInterrupt:  # at the prompt, or in the moment before the first token
            print(file=sys.stderr)
        except (DataError, UsageError) as error:  # of this line: the next may do
            log.error("%s", advice(error))


def _whole(ask: Callable[[], str]) -> str:
    lines = [ask()]
    while lines[-1].endswith(_GOES_ON):
        lines[-1] = lines[-1].removesuffix(_GOES_ON)
        lines.append(ask())
    return "\n".join(lines)


class _Turns:
    """What was said so far; nothing, where each line is a text to go on from."""

    def __init__(self, session: WritingSession) -> None:
        self._session, self._said = session, list[Turn]()
        self._number = 0
        """Answers so far: each draws from random numbers of its own."""

    def forget(self) -> None:
        """Begin again."""
        self._said = []
        log.info("the conversation begins again")

    def answer(self, text: str) -> None:
        """Write an answer to stdout, and remember it.

        Raises:
            DataError: the text cannot be read, or is too long.
        """
        text = clean(text, "the prompt")
        ids = self._ids(text)
        is_chat = self._session.options.chat
        self._session.check_room(ids, "the prompt", answers=is_chat)
        streamed = self._session.streamed(ids, self._session.seed, self._number, answers=is_chat)
        self._number += 1
        if not is_chat:
            show(text)
        told = _told(self._session, streamed)
        show("" if told.endswith("\n") else "\n")
        if is_chat:
            self._said += [Turn("user", text), Turn("assistant", told)]

    def _ids(self, text: str) -> list[int]:
        """The tokens of what is asked, behind as much of the conversation as leaves room for an answer."""
        options, model = self._session.options, self._session.model
        if not options.chat:
            return model.ids_of(text, self._session.genre)
        system = [Turn("system", options.system)] if options.system else []
        room = model.context - min(options.max_tokens, model.context // _ROOM)
        dropped = 0
        while True:
            ids = model.ids_of_turns([*system, *self._said, Turn("user", text)])
            if len(ids) <= room or not self._said:
                break
            self._said, dropped = self._said[2:], dropped + 1
        if dropped:
            log.warning(
                "the context of %s is full: forgot the oldest questions: %d",
                plural(model.context, "token"),
                dropped,
            )
        return ids


def _told(session: WritingSession, streamed: Streamed) -> str:
    """Show an answer as it is written; all of it. Ctrl-C ends it."""
    with _stopping(streamed):
        for piece in session.stream(streamed):
            show(piece)
    return streamed.told


@contextlib.contextmanager
def _stopping(streamed: Streamed) -> Iterator[None]:
    """While it lasts, Ctrl-C ends the text after the token that is being written."""

    def stop(signum: int, frame: FrameType | None) -> None:
        streamed.written.finish = streamed.written.finish or STOP

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
