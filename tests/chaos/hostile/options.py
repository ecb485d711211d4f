"""Every option of every command with values that it cannot have, with its extremes, and with odd files.

All is taken from the declarations, by the reader that the product itself uses for them: what that says a
value cannot be must end with 64 and name the option. What it can be may be done, or refused with reason; 75
("try again") is never right, as no later try changes an option.
"""

from __future__ import annotations

import dataclasses
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
TEXTS = {
    "nothing": "",
    "space": " ",
    "comma": ",",
    "two lines": "a\nb",
    "escape": "a\x1b[31mb",
    "no UTF-8": "a\udcffb",
    "longest": "长" * 40_000,
    "braces": "{诗: 5",
    "half a pair": "=b",
    "other half": "诗=",
    "star": "*",
    "above": "..",
    "percent": "%s%n",
    "twice": "诗,诗",
    "quote": "'\"",
    "dashes": "--",
    "yaml": "!!python/object:os.system x",
    "minus": "-1",
    "huge": "1e400",
    "many": ",".join(f"g{n}=1" for n in range(5000)),
    "url": "http://localhost:1/x",
    "s3": "s3://",
    "unknown scheme": "gs://bucket/x",
    "zero device": "/dev/zero",
    "json": '{"a": {"a": {}}}',
    "deep": "[" * 5000,
    "slash": "诗/词",
    **{f"a file: {name}": f"@in/{name}" for name in ODD},
    "parts": "/proc/self/mem",  # reading it is an error of input or output, as of a failing disk
    "directory": "/proc",
}
"""Label -> text for an option that takes any; tests/components/test_every_option.py has more, for stages."""
NUMBERS = {"nothing": "", "word": "x", "half": "1.5", "huge": "1e400", "nan": "nan", "smallest": "1e-300"}
NUMBERS |= {"wide digits": "１０", "minus": "-1", "zero": "0", "long": "9" * 5000}


def situations(seed: int, store: Store) -> Iterator[Situation]:
    """Every option of every command with every text."""
    for command in COMMANDS.values():
        for name in mine(command):
            yield from (_of_value(command, name, *found) for found in texts_of(command.values[name]).items())


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


def _of_value(command: Command, name: str, label: str, text: str) -> Situation:
    """A command with a text for one of its options or words."""
    values, argv = command.values[name], command.line(without=flag(name))
    wrong: tuple[str, ...] = ()
    if name in command.words_declared:
        argv = _with_word(command, name, text)
    else:
        argv = (*argv, f"{flag(name)}={text}")
    if not _is_value(values, text.replace("@in/", "/in/")):  # a path, as the ground makes it
        wrong = (called(command.options, name),)
    retry = (RETRY,) if label == "parts" or name == "endpoint" else ()  # what nothing answers to today
    codes = (USAGE, *retry) if wrong else (0, USAGE, DATA, ENVIRONMENT, *retry, *command.codes)
    expected = Expected(codes, wrong, command.commits, command.says_on_stdout)
    return Situation(f"{command.name}/{name}={label}", argv, expected, stop_after=STOP_AFTER)


def _is_value(values: Values, text: str) -> bool:
    try:
        values.read(text)
    except WrongValue:
        return False
    return True


def _with_word(command: Command, name: str, text: str) -> tuple[str, ...]:
    """The command line with another text for one of its words, which stand first."""
    words = [a for a in command.flags if not a.startswith("--")]
    place = command.words_declared.index(name)
    if place <= len(words):  # one that may be left out is not among the flags
        words[place : place + 1] = [text]
    flags = [a for a in command.flags if a.startswith("--")]
    return (*command.words, *flags, "--", *words)
