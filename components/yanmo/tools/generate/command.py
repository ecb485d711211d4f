"""The command line of `yanmo generate`."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from yanmo.common.answers import answer, only_answers, visible
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import DataError, ExitCode, UsageError
from yanmo.common.logs import setup
from yanmo.options.command_line import load_given
from yanmo.options.fields import default_argv, opt, word
from yanmo.options.shared import MODEL, ToolOptions, channel_opt
from yanmo.options.values import MOST_EXACT
from yanmo.store.opening import store_of
from yanmo.verse.forms import TONES, form_of, known_forms

if TYPE_CHECKING:
    from yanmo.tools.generate.writing_session import WritingSession

log = logging.getLogger(__name__)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters but tab and line break: no training text holds one (`yanmo curate` takes them out)."""


_OWN = "what the model's generation_config.json says, else {default}"


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(ToolOptions, group="generate"):
    """Let a model go on from a text, or answer a question.

        yanmo generate 春眠不觉晓 --model demo          # the champion of the channel demo
        yanmo generate --chat 什么是词？ --model FOLDER
        yanmo generate --form 七绝 --rhyme 东 春 --model demo   # a poem whose form holds

    Without a prompt it reads stdin. What is written goes to stdout as it comes; control characters are
    shown as \\u001b and never reach the terminal. For conversations and many prompts serve an export
    (docs/how-to/use-a-model.md). Exit code: 0, 64, 65 (no such model, a damaged one, a prompt that does not
    fit), 78.
    """

    prompt: str = word(
        "text to go on from, or the question with --chat; - reads it from stdin", default="", free=True
    )
    model: str = opt(
        "",
        f"model: a folder in Hugging Face's layout, {MODEL}; default: the champion of --channel",
        often=True,
    )
    channel: str = channel_opt("whose champion writes where --model is not given")
    chat: bool = opt(
        False, "answer: the prompt is a turn between the marks of the model's training (ChatML)", often=True
    )
    system: str = opt("", "system turn that is read before the question")
    genre: str = opt("", "genre whose tag the model reads before the text", often=True)
    form: str = opt(
        "",
        "form of verse that what is written holds: four or eight lines of five or seven characters (wujue, "
        "wulu, qijue, qilu, in Chinese), a tune of ci, or list, which shows all",
        often=True,
    )
    rhyme: str = opt("", "character of the rhyme that --form keeps to; default: any", often=True)
    tone: str = opt(
        "strict",
        "tones of --form: all its rules, loose (only those of characters 2, 4, 6 and the last), or free",
        choices=TONES,
    )
    tries: int = opt(
        4, "times that each line of a form is written, of which a likely one is kept", least=1, most=256
    )
    samples: int = opt(1, "texts of each prompt", least=1, most=10_000, often=True)
    max_tokens: int = opt(256, "most tokens of a text", least=1, often=True)
    temperature: float = opt(
        0.8, "softmax temperature; 0 takes the likeliest token", auto=_OWN, most=1000, often=True
    )
    top_p: float = opt(
        0.95, "probability mass of the likeliest tokens that are drawn from", auto=_OWN, above=0, most=1
    )
    top_k: int = opt(0, "number of the likeliest tokens that are drawn from; 0 is all", auto=_OWN)
    min_p: float = opt(
        0.0, "least probability that is drawn, as a share of the likeliest token's", auto=_OWN, most=1
    )
    repetition_penalty: float = opt(
        1.0,
        "divides the logits of tokens that prompt or text hold already (multiplies negative ones)",
        auto=_OWN,
        above=0,
        most=100,
    )
    seed: int = opt(
        -1,
        "seed of the draws; -1 takes a new one, which the log names",
        least=-1,
        most=MOST_EXACT,
        often=True,
    )
    device: str = opt("auto", "where it computes", choices=("auto", "cpu", "cuda"), often=True)
    precision: str = opt("fp32", "type of weights and sums", choices=("fp32", "bf16"))

    def contradictions(self) -> Iterator[str]:
        """Options that exclude each other."""
        if self.chat and self.genre:
            yield "--chat and --genre: no conversation of the training had a genre tag; leave one out"
        if self.system and not self.chat:
            yield "--system: expected --chat with it"
        if self.rhyme and not self.form:
            yield "--rhyme: expected --form with it"
        if self.form and self.form != "list":
            try:
                form_of(self.form, self.rhyme, self.tone)
            except ValueError as error:
                yield f"--form: {error}"


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
