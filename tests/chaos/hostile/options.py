"""Every option of every command with values that it cannot have, with its extremes, and with odd files.

All is taken from the declarations, by the reader that the product itself uses for them: what that says a
value cannot be must end with 64 and name the option. What it can be may be done, or refused with reason; 75
("try again") is never right, as no later try changes an option.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

from chaos.hostile.cases import Situation
from chaos.hostile.commands import COMMANDS, Command
from chaos.hostile.rule import DATA, ENVIRONMENT, RETRY, USAGE, Expected
from chaos.hostile.store import ODD, Store
from yanmo.options.fields import called, flag
from yanmo.options.values import Values, WrongValue
from yanmo_pipelines.pod_options import PodOptions

ANYWHERE = ("store", "endpoint", "scratch", "scratch_gib", "channel", "inputs", "pointer")
IN_RUNS = ("executor_input", "run_id", "force", "metrics_port", "log_level")
OF_A_CLUSTER = ("host", "ui", "namespace", "token_file", "look_seconds", "context")
OF_PODS = tuple(field.name for field in dataclasses.fields(PodOptions))
FOR_ALL = {
    "balance": (*ANYWHERE, *IN_RUNS),
    "store-ls": ANYWHERE,
    "train": ANYWHERE,
    "curate": ("store",),
    "status": (*OF_A_CLUSTER, "store", "channel"),
    "submit": (*OF_A_CLUSTER, "store", "channel"),
    "rerun": ("inputs", "channel"),
    "compile": OF_PODS,
    "resolve": OF_PODS,
}
"""Command -> options of every command that are tried with it; with others they are the same code."""
STOP_AFTER = 12.0
PAIRS = 40
"""Of options, for each stage."""
TEXTS = {
    "nothing": "",
    "space": " ",
    "comma": ",",
    "line end": "\n",
    "two lines": "a\nb",
    "escape": "a\x1b[31mb",
    "right to left": "a\u202eb",
    "no UTF-8": "a\udcffb",
    "long": "x" * 5000,
    "longest": "长" * 40_000,
    "brace": "{",
    "braces": "{诗: 5",
    "list": "[1]",
    "pair": "a=b",
    "half a pair": "=b",
    "other half": "诗=",
    "equals": "=",
    "star": "*",
    "above": "..",
    "devices": "/dev",
    "percent": "%s%n",
    "format": "{0}{x}",
    "word": "诗",
    "words": "诗,词",
    "twice": "诗,诗",
    "emoji": "🙂",
    "quote": "'\"",
    "dash": "-",
    "dashes": "--",
    "colon": "a: b",
    "yaml": "!!python/object:os.system x",
    "zero": "0",
    "minus": "-1",
    "huge": "1e400",
    "nan": "nan",
    "many": ",".join(f"g{n}=1" for n in range(5000)),
    "url": "http://localhost:1/x",
    "s3": "s3://",
    "unknown scheme": "gs://bucket/x",
    "null device": "/dev/null",
    "zero device": "/dev/zero",
    "json": '{"a": {"a": {}}}',
    "deep": "[" * 5000,
    "wide digits": "１０",
    "slash": "诗/词",
    **{f"a file: {name}": f"@in/{name}" for name in ODD},
    "parts": "/proc/self/mem",  # reading it is an error of input or output, as of a failing disk
    "directory": "/proc",
}
"""Label -> text for an option that takes any."""
NUMBERS = {
    "nothing": "",
    "word": "x",
    "half": "1.5",
    "huge": "1e400",
    "nan": "nan",
    "infinite": "inf",
    "hex": "0x10",
    "wide digits": "１０",
    "comma": "1,5",
    "minus": "-1",
    "zero": "0",
    "smallest": "1e-300",
    "long": "9" * 5000,
}


def situations(seed: int, store: Store) -> Iterator[Situation]:
    """Every option alone, then drawn pairs of a stage's options, both at an extreme that they can have."""
    for command in COMMANDS.values():
        for name in mine(command):
            for label in texts_of(command.values[name]):
                yield of_values(command, {name: label})
    draw = random.Random(f"{seed}/pairs")
    for command in filter(lambda c: c.is_stage, COMMANDS.values()):
        for _ in range(PAIRS):
            yield _pair(command, draw)


def mine(command: Command) -> list[str]:
    """The options of a command that are tried with it."""
    shared = {*ANYWHERE, *IN_RUNS, *OF_A_CLUSTER, *OF_PODS}
    fields = [field.name for field in dataclasses.fields(command.options)]
    return [name for name in fields if name not in shared or name in FOR_ALL.get(command.name, ())]


def texts_of(values: Values) -> dict[str, str]:
    """Label -> text to try for an option that takes these values."""
    if values.choices:
        first, *_, last = map(str, (*values.choices, values.choices[0]))
        return {
            **{f"choice {choice}": str(choice) for choice in values.choices},
            "upper case": first.upper(),
            "two": f"{first},{last}",
            "nothing": "",
            "word": "x",
            "cut": first[:-1],
        }
    if values.type is bool:
        return {"true": "true", "false": "false", "nothing": "", "number": "2", "word": "maybe"}
    if values.type not in (int, float):
        return TEXTS
    low, high = values.bounds.least, values.bounds.most
    ends = {
        "least": low,
        "most": high,
        "below the least": low - 1,
        "above the most": high + 1,
        "far above": high * 10,
    }
    words = {f"word {word}": word for word in values.words}
    return {**NUMBERS, **{label: f"{end:.17g}" for label, end in ends.items()}, **words}


def of_values(command: Command, labels: dict[str, str]) -> Situation:
    """A command with the texts that labels name for some of its options and words."""
    known, argv, wrong = command.values, command.line(), []
    for name, label in labels.items():
        text = texts_of(known[name])[label]
        if name in command.words_declared:
            argv = _with_word(command, argv, name, text)
        else:
            argv = (*(a for a in argv if not a.startswith(f"{flag(name)}=")), f"{flag(name)}={text}")
        if not _is_value(known[name], text.replace("@in/", "/in/")):  # a path, as the ground makes it
            wrong.append(called(command.options, name))
    what = "&".join(f"{name}={label}" for name, label in labels.items())
    may_pass = "parts" in labels.values() or "endpoint" in labels  # a name that nothing answers to today
    retry = (RETRY,) if may_pass else ()
    codes = (USAGE, *retry) if wrong else (0, USAGE, DATA, ENVIRONMENT, *retry, *command.codes)
    return _case(command, what, argv, Expected(codes, tuple(wrong)))


def _case(command: Command, what: str, argv: tuple[str, ...], expected: Expected) -> Situation:
    expected = dataclasses.replace(
        expected, may_commit=command.commits, says_on_stdout=command.says_on_stdout
    )
    return Situation(f"{command.name}/{what}", argv, expected, stop_after=STOP_AFTER)


def _is_value(values: Values, text: str) -> bool:
    try:
        values.read(text)
    except WrongValue:
        return False
    return True


def _with_word(command: Command, argv: tuple[str, ...], name: str, text: str) -> tuple[str, ...]:
    """The command line with another text for one of its words, which stand first."""
    words = [a for a in command.flags if not a.startswith("--")]
    place = command.words_declared.index(name)
    if place <= len(words):  # one that may be left out is not among the flags
        words[place : place + 1] = [text]
    flags = [a for a in command.flags if a.startswith("--")]
    return (*command.words, *flags, "--", *words)


def _pair(command: Command, draw: random.Random) -> Situation:
    """Two options of a stage at values that each of them can have."""
    names = draw.sample([n for n in mine(command) if n not in {*ANYWHERE, *IN_RUNS}], 2)
    labels = {}
    for name in names:
        texts = texts_of(command.values[name])
        some = draw.sample(list(texts), len(texts))
        labels[name] = next((s for s in some if _is_value(command.values[name], texts[s])), some[0])
    return of_values(command, labels)
