"""From a command line to the options of a stage, a tool or any other command: the only reader of them.

A stage's options come from, in rising order: their defaults (for some an environment variable), options that
stand for others (size, preset), the `--config` file, its part of `--options` (of several the last), flags. A
tool's come from defaults, flags and words. All of them are read by the same reader (values.py).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from yanmo.common.address import Address
from yanmo.common.errors import UsageError
from yanmo.common.words import did_you_mean
from yanmo.options.fields import AUTO, REQUIRED, Options, called, flag, names_of, spelled, values_of
from yanmo.options.help import show_commands, show_help
from yanmo.options.one_line import STAGES, read_line
from yanmo.options.shared import StageOptions
from yanmo.options.values import Values, WrongValue, brief, mistyped
from yanmo.options.yaml_file import read_yaml

C = TypeVar("C", bound=Options)


def load_command(
    commands: Mapping[str, type[C]], argv: Sequence[str], prog: str, about: str
) -> tuple[str, C]:
    """Return the command of a group that the first word names, and its options; raises as `load`."""
    name = argv[0] if argv else ""
    if name in commands:
        return name, load(commands[name], argv[1:], f"{prog} {name}")
    show_commands(commands, argv, prog, about)
    found = f"{brief(name)}: expected" if argv else "is missing: expected"
    raise UsageError(
        f"COMMAND {found} one of {', '.join(commands)}{did_you_mean(name, commands)}; see {prog} --help"
    )


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
    texts = _texts(cls, argv, prog)
    if "executor_input" in texts and len(texts.get("channel", ())) > 1:
        # a pipeline's own channel, and the form's, which somebody may have emptied
        texts["channel"] = [text for text in texts["channel"] if text.strip()][-1:]
    source = (texts.pop("config", None) or [""])[-1]
    from_file = _from_file(cls, source) if source else {}
    stage, from_line = prog.rpartition(" ")[2], dict[str, Any]()
    known = [] if "executor_input" in texts else [*STAGES, stage]  # a pipeline's first task has looked
    for line in texts.pop("options", None) or ():
        from_line |= _from_line(cls, line, stage, known)
    if "executor_input" in texts:
        _refuse_twice("--config", from_file, texts)
        _refuse_twice("options", from_line, texts)
    given: dict[str, Any] = from_file | from_line
    for name, each in texts.items():
        topic = f"; see {prog} --help {name.replace('_', '-')}"
        given |= _read(cls, [(name, text) for text in each], topic)
    stood_for = _stood_for(cls, given)
    values = {**_defaults(cls), **stood_for, **given}
    for field in dataclasses.fields(cls):
        if field.name not in values:
            expected = f"{called(cls, field.name)} is missing: expected {field.metadata['help']}"
            raise UsageError(f"{expected}; see {prog} --help")
    named = frozenset(stood_for | given) | _by_launcher(cls)
    values |= {name: value for name, value in cls.left_open(values).items() if name not in named}
    try:
        return cls(**values), named
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def _defaults(cls: type[Options]) -> dict[str, Any]:
    """Return the defaults: those of the declaration, or of the environment where a variable is set.

    Raises:
        UsageError: a variable holds what its option cannot be.
    """
    found = {f.name: f.default for f in dataclasses.fields(cls) if f.default is not REQUIRED}
    for field in dataclasses.fields(cls):
        variable = field.metadata["variable"]
        if variable and os.environ.get(variable):
            found |= _read(cls, [(field.name, os.environ[variable])], f" (from the variable {variable})")
    return found


def _by_launcher(cls: type[Options]) -> frozenset[str]:
    """Options that the machine decides unless somebody does, and that a variable of the environment gives."""
    found = {f.name: os.environ.get(f.metadata["variable"] or "", "") for f in dataclasses.fields(cls)}
    decided = set(names_of(cls, by_machine=True))
    return frozenset(name for name, text in found.items() if name in decided and text not in ("", AUTO))


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
        try:
            found = _read(cls, [(name, spelled(value)) for name, value in texts.items()])
        except UsageError as error:
            raise UsageError(f"{cls.bundled_by({**_defaults(cls), **given})}{error}") from None
    return found


def _texts(cls: type, argv: Sequence[str], prog: str) -> dict[str, list[str]]:
    """Option or word -> the texts that a command line gives it, in their order.

    A flag is `--OPTION=text`, `--OPTION text` or, for one that is true or false, `--OPTION` alone. Where a
    command takes words, they alone follow `--`.
    """
    known, of_words = values_of(cls), set(names_of(cls, kind="word"))
    flags, takes_words = {flag(name): name for name in known if name not in of_words}, bool(of_words)
    flags |= {"--config": "config", "--options": "options"} if issubclass(cls, StageOptions) else {}
    found, words, left = dict[str, list[str]](), list[str](), list(argv)
    while left:
        word, equals, text = left.pop(0).partition("=")
        if takes_words and word + equals == "--":
            words, left = words + left, []
        elif not word.startswith("-") or word + equals == "-":
            words.append(word + equals + text)
        elif word not in flags:
            hint = did_you_mean(word[2:], (each[2:] for each in flags), "--")
            raise UsageError(f"unknown option {brief(word)}{hint}{mistyped(word)}; see {prog} --help")
        else:
            values = known.get(flags[word])
            texts = [text] if equals else _texts_in(left, values, takes_words)
            if not texts:
                raise UsageError(f"{word}: expected a value after it; see {prog} --help")
            found.setdefault(flags[word], []).extend(texts)
    return found | _by_word(cls, words, prog)


def _by_word(cls: type, words: Sequence[str], prog: str) -> dict[str, list[str]]:
    """Return which of the words is which."""
    found = {}
    for name in names_of(cls, kind="word") if words else ():
        count = len(words) if values_of(cls)[name].several else 1
        found[name], words = list(words[:count]), words[count:]
    if words:
        raise UsageError(f"{brief(words[0])}: expected --OPTION{mistyped(words[0])}; see {prog} --help")
    return {name: texts for name, texts in found.items() if texts}


def _texts_in(left: list[str], values: Values | None, are_words: bool) -> list[str]:
    """Take the texts of an option off what is left of the command line.

    Args:
        are_words: whether what follows may be words of the command: they are left to it.
    """
    if values and values.type is bool:
        is_value = not are_words and left and _can_read(values, left[0])
        return [left.pop(0) if is_value else "true"]
    found = [left.pop(0)] if left and not left[0].startswith("--") else []
    takes_more = values and values.several and not are_words
    while found and takes_more and left and not left[0].startswith("-"):
        found.append(left.pop(0))
    return found


def _can_read(values: Values, text: str) -> bool:
    try:
        values.read(text)
    except WrongValue:
        return False
    return True


def _read(cls: type, given: Iterable[tuple[str, str]], see: str = "") -> dict[str, Any]:
    """Return the values of texts, the last one of each option; without those that are `auto`.

    Args:
        see: after what is wrong with a value.

    Raises:
        UsageError: no such option, or no value that it can have; says what was expected.
    """
    known, found = values_of(cls), dict[str, Any]()
    for name, text in given:
        if name not in known:
            shown = name if len(name) <= 60 else brief(name)
            raise UsageError(
                f"unknown option {shown!r}{did_you_mean(name, known) or '; see --help all'}{mistyped(name)}"
            )
        try:
            value = known[name].read(text)
        except WrongValue as error:
            raise UsageError(f"{called(cls, name)} {error}{see}") from None
        if value is not None:
            found[name] = found.get(name, ()) + value if known[name].several else value
    return found


def _from_file(cls: type, source: str) -> dict[str, Any]:
    """Return the options of --config; its errors name the file."""
    texts = read_yaml(source)
    try:
        return _read(cls, texts.items())
    except UsageError as error:
        raise UsageError(f"{Address(source)}: {error}") from None


def _from_line(cls: type, line: str, stage: str, known: Iterable[str]) -> dict[str, Any]:
    """Return the options of `--options` that are of `stage`; its errors name them as the line does.

    Args:
        known: the stages that the line may name; empty for any.
    """
    try:
        return _read(cls, read_line(line, known).get(stage, {}).items())
    except UsageError as error:
        raise UsageError(f"options of {stage}: {error}") from None


def _refuse_twice(where: str, given: Iterable[str], flags: Iterable[str]) -> None:
    """Raise `UsageError` for what is given and a flag too: a field of the run form comes as a flag, and would
    silently win."""
    twice = sorted(flag(name) for name in {*given} & {*flags})
    if twice:
        raise UsageError(
            f"{where} names {', '.join(twice)}, which the pipeline itself sets; set it on the run form"
        )
