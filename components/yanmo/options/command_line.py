"""Command lines: what was given of a stage's options, and one parser for the tools.

A stage's options come from, in rising order: their defaults, options that stand for others (size,
preset), the `--config` file, flags. All of them are read by the same reader (values.py).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from yanmo.common.errors import UsageError
from yanmo.options.fields import StageOptions, flag, spelled, values_of
from yanmo.options.help import show_help
from yanmo.options.nearest import did_you_mean
from yanmo.options.values import Values, WrongValue, brief
from yanmo.options.yaml_file import read_yaml, shown_source

C = TypeVar("C", bound=StageOptions)


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are usage errors that name what may have been meant."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, left = super().parse_known_args(args, namespace)
        if left:  # also where it is the parser of a subcommand
            self.error(self._unknown(left))
        return found, left

    def _unknown(self, left: Sequence[str]) -> str:
        name = next((word for word in left if word.startswith("-")), left[0]).partition("=")[0]
        if not name.startswith("-"):
            return f"unexpected {brief(name)}: expected options"
        names = [known[2:] for known in self._option_string_actions if known.startswith("--")]
        return f"unknown option {brief(name)}{did_you_mean(name[2:], names, '--')}"

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the whole usage."""
        text = message.removeprefix("argument ")
        text = re.sub(r"\A(-[\w-]+): (.+?): expected", r"\1 \2: expected", text, count=1)
        choice = re.match(r"[^']*invalid choice: '(.*?)' \(choose from (.*)\)\Z", text, re.DOTALL)
        if choice:
            names = re.findall(r"'(.*?)'", choice[2])
            where = text.partition(":")[0]
            text = f"{where} {choice[1]}: expected one of {', '.join(names)}{did_you_mean(choice[1], names)}"
        raise UsageError(f"{text}; see {self.prog} --help")


def add_options(parser: Any, cls: type, names: Iterable[str]) -> None:
    """Give a tool's parser options that stages declare: same names, helps, defaults and bounds."""
    fields = cls.__dataclass_fields__  # type: ignore[attr-defined]
    for name in names:
        values, meta = values_of(cls)[name], fields[name].metadata
        settings: dict[str, Any] = (
            {"action": "store_true"} if values.type is bool else {"type": values.argument}
        )
        if values.choices:
            settings["metavar"] = "|".join(values.choices)
        default = fields[name].default
        text = meta["help"] + (f" (default: {default})" if default not in ("", False) else "")
        parser.add_argument(flag(name), default=default, help=text.replace("%", "%%"), **settings)


def load(cls: type[C], argv: Sequence[str], prog: str) -> C:
    """Build `cls` from its defaults, then the --config YAML file, then the flags.

    Options that stand for others (`Options.bundles`) come before the file.

    Raises:
        UsageError: an unknown option, a value that it cannot have, or values that contradict.
        SystemExit: `--help` or `--version`, after printing it.
    """
    return load_given(cls, argv, prog)[0]


def load_given(cls: type[C], argv: Sequence[str], prog: str) -> tuple[C, frozenset[str]]:
    """`load`, and the names of the options that a bundle, the file or a flag gave."""
    show_help(cls, argv, prog)
    flags = _flags(cls, argv, prog)
    source = (flags.pop("config", None) or [""])[-1]
    from_file = _from_file(cls, source) if source else {}
    if "executor_input" in flags:
        _refuse_twice(from_file, flags)
    given: dict[str, Any] = dict(from_file)
    for name, texts in flags.items():
        given |= _read(cls, [(name, text) for text in texts], f"; see {prog} --help {name.replace('_', '-')}")
    stood_for = _stood_for(cls, given)
    values = {**_defaults(cls), **stood_for, **given}
    named = frozenset(stood_for | given)
    values |= {name: value for name, value in cls.left_open(values).items() if name not in named}
    try:
        return cls(**values), named
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def _defaults(cls: type) -> dict[str, Any]:
    return {name: f.default for name, f in cls.__dataclass_fields__.items()}  # type: ignore[attr-defined]


def _stood_for(cls: type[C], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of options that bundles (presets) among `given` stand for."""
    found: dict[str, Any] = {}
    for _ in range(2):  # one of them may choose another one
        try:
            texts = cls.bundles({**_defaults(cls), **found, **given})
        except UsageError:
            raise
        except ValueError as error:
            raise UsageError(str(error)) from error
        found = _read(cls, [(name, spelled(value)) for name, value in texts.items()])
    return found


def _flags(cls: type, argv: Sequence[str], prog: str) -> dict[str, list[str]]:
    """Option -> the texts that flags give it, in their order.

    A flag is `--OPTION=text`, `--OPTION text` or, for one that is true or false, `--OPTION` alone. Not by
    argparse, which takes `--OPTION=--` for no text at all.
    """
    known, found, words = values_of(cls), dict[str, list[str]](), list(argv)
    while words:
        word, equals, text = words.pop(0).partition("=")
        name = "config" if word == "--config" else _name_of(word)
        if name != "config" and name not in known:
            hint = did_you_mean(word[2:], (flag(each)[2:] for each in known), "--")
            what = f"unknown option {brief(word)}{hint}" if name else f"{brief(word)}: expected --OPTION"
            raise UsageError(f"{what}; see {prog} --help")
        if not equals and name != "config" and known[name].type is bool:
            text = words.pop(0) if words and _can_read(known[name], words[0]) else "true"
        elif not equals:
            if not words or words[0].startswith("--"):
                raise UsageError(f"{word}: expected a value after it; see {prog} --help")
            text = words.pop(0)
        found.setdefault(name, []).append(text)
    return found


def _name_of(word: str) -> str:
    """The option that a flag names, spelled with `-`; "" for what is no flag."""
    is_flag = word.startswith("--") and "_" not in word
    return word.removeprefix("--").replace("-", "_") if is_flag else "?" * word.startswith("-")


def _can_read(values: Values, text: str) -> bool:
    try:
        values.read(text)
    except WrongValue:
        return False
    return True


def _read(cls: type, given: Iterable[tuple[str, str]], see: str = "") -> dict[str, Any]:
    """The values of texts, the last one of each option; without those that are `auto`.

    Raises:
        UsageError: no such option, or no value that it can have; says what was expected.
    """
    known, found = values_of(cls), {}
    for name, text in given:
        if name not in known:
            raise UsageError(f"unknown option {name!r}{did_you_mean(name, known)}")
        try:
            value = known[name].read(text)
        except WrongValue as error:
            raise UsageError(f"{flag(name)} {error}{see}") from None
        if value is not None:
            found[name] = value
    return found


def _from_file(cls: type, source: str) -> dict[str, Any]:
    """The options of --config; its errors name the file."""
    texts = read_yaml(source)
    if "config" in texts:
        raise UsageError(f"{shown_source(source)}: one options file cannot name another (`config`)")
    try:
        return _read(cls, texts.items())
    except UsageError as error:
        raise UsageError(f"{shown_source(source)}: {error}") from None


def _refuse_twice(from_file: Iterable[str], flags: Iterable[str]) -> None:
    """In a pipeline every field of the run form comes as a flag, so it would silently win."""
    twice = sorted(flag(name) for name in {*from_file} & {*flags})
    if twice:
        raise UsageError(
            f"--config names {', '.join(twice)}, which the pipeline itself sets; set it on the run form"
        )
