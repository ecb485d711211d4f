"""Options of `yanmo generate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from yanmo.options.fields import opt, word
from yanmo.options.shared import MODEL, ToolOptions, channel_opt
from yanmo.options.values import MOST_EXACT
from yanmo.verse.forms import TONES, form_of

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
        "form of verse that what is written holds: four or eight lines of five or seven characters (五绝, "
        "五律, 七绝, 七律), a tune of 词, or list, which shows all",
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
