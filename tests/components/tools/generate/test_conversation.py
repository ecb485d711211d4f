"""In a terminal: answers as they are written, Ctrl-C for the answer, Ctrl-D for the program."""

import os
import pty
import select
import subprocess
import sys
import time

import pytest
from saying import random_model, saying_model

from yanmo.tools.generate.conversation import talk
from yanmo.tools.generate.named_model import open_model
from yanmo.tools.generate.options import GenerateOptions
from yanmo.tools.generate.writing_session import WritingSession


def session(folder, **options):
    given = GenerateOptions(model=str(folder), seed=1, **options)
    model = open_model(None, str(folder), "dev", "cpu", "fp32")
    return WritingSession(model, given, frozenset(options))


def asking(*texts):
    """What a person types: each text, then the end; an exception is raised in its place."""
    left = iter([*texts, EOFError])

    def ask():
        found = next(left)
        if isinstance(found, type):
            raise found
        return found

    return ask


def said_by(folder, capsys, *texts, **options):
    talk(session(folder, **options), asking(*texts))
    return capsys.readouterr().out


def test_each_line_is_gone_on_from_and_ctrl_c_drops_one(tmp_path, capsys):
    model = saying_model(tmp_path / "m", ["春", "眠", "<|eos|>"])
    said = said_by(model, capsys, "春", "", KeyboardInterrupt, "\x1b", "夜\\", "春", "/help")
    assert said == "春眠\n夜\n春眠\n", "an empty line is no prompt, a control character is refused"


@pytest.mark.parametrize(("context", "when_full"), [(256, "stop"), (40, "slide")])
def test_an_answer_is_the_same_whether_the_conversation_was_read_before_or_not(
    tmp_path, capsys, context, when_full
):
    """Keys and values of the turns before are kept; read again, they would give the same answers."""
    model = random_model(tmp_path / "m", max_position_embeddings=context)
    how = {"chat": True, "temperature": 0.0, "max_tokens": 12, "when_full": when_full}
    kept, again = session(model, **how), session(model, **how)
    stream = again.stream

    def forgetful(streamed):
        again._kept, again._read = None, []
        yield from stream(streamed)

    again.stream = forgetful
    answers = []
    for one in (kept, again):
        talk(one, asking("春眠", "处处闻啼鸟", "夜来", "风雨声"))
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] and (len(kept._read) > 60) == (when_full == "stop")


def test_what_no_longer_fits_is_forgotten_from_the_oldest_on(tmp_path, capsys, caplog):
    model = random_model(tmp_path / "m", max_position_embeddings=64)
    talk(session(model, chat=True, max_tokens=8), asking(*["春眠不觉晓"] * 6, "/clear", "春", "眠" * 60))
    assert "forgot the oldest questions" in caplog.text
    assert "tokens, and the context of" in caplog.text, "a question that alone does not fit"


class Terminal:
    """The program in a terminal of its own."""

    def __init__(self, *argv):
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "yanmo.cli", "generate", *map(str, argv)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
        )
        os.close(slave)
        self.seen = b""

    def wait_for(self, text, after=0, again=""):
        """Read until the screen shows it; where it ends. `again` is typed every 10 s until then."""
        began = typed = time.monotonic()
        while (at := self.seen.find(text.encode(), after)) < 0:
            assert time.monotonic() - began < 300, self.seen
            if again and time.monotonic() - typed > 10:
                self.type(again)
                typed = time.monotonic()
            if select.select([self._master], [], [], 1)[0]:
                self.seen += os.read(self._master, 65536)
        return at + len(text.encode())

    def type(self, text):
        os.write(self._master, text.encode())

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(tmp_path):
    model = saying_model(tmp_path / "m", ["春", "眠", "不", "春"], context=100_000)
    found = Terminal("--model", model, "--max-tokens", "1000000", "--when-full", "slide")
    yield found
    found.close()


@pytest.mark.long
def test_ctrl_c_stops_the_answer_and_ctrl_d_ends_the_program(terminal):
    at = terminal.wait_for("> ")
    terminal.type("春\n")
    at = terminal.wait_for("春眠不春眠不春眠不", at)
    terminal.type("\x03")
    at = terminal.wait_for("\n> ", at)
    terminal.type("夜\x03")  # a line that is not sent
    # A Ctrl-C between readline's prompt and its wait for a key is seen with the next key: CPython's
    # readline_until_enter_or_signal looks for signals only where select was interrupted.
    at = terminal.wait_for("> ", at, again="\x03")
    terminal.type("夜\n")
    at = terminal.wait_for("夜", at)
    at = terminal.wait_for("> ", at)
    terminal.type("\x04")
    assert terminal.process.wait(300) == 0
    assert b"Traceback" not in terminal.seen
