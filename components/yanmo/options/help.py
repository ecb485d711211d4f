"""`--help` of every command: of a tool all its options, of a stage what people set often and the names of
the groups; `--help OPTION`, `--help GROUP`, `--help all`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from yanmo.common.answers import show
from yanmo.common.errors import UsageError
from yanmo.common.words import did_you_mean
from yanmo.options.fields import (
    NONE,
    REQUIRED,
    Options,
    called,
    default_argv,
    flag,
    option_fields,
    shown,
    values_of,
)
from yanmo.options.shared import StageOptions
from yanmo.options.values import AUTO, MOST, MOST_EXACT, Bounds, brief

_WIDTH, _INDENT = 100, 26
_MARKS = {"execution": "[not in the key]", "environment": "[not recorded]"}
_LEGEND = (
    "The key names an output: a run whose key is already in the store makes nothing again. Every option is "
    "part of it except those marked [not in the key] (how the output is made; recorded with it) and [not "
    "recorded]."
)
_PRECEDENCE = "A flag wins over --config (a YAML file), which wins over {bundles}the default. "
_ELSEWHERE = {
    "--config FILE": "YAML file of options, such as the config.yaml beside an output; flags win over it",
    "--options LINE": "options of stages in one line, such as 'train.steps=20 train.seed=1'; they win over "
    "--config, and flags over them",
}
_EXIT_CODES = (
    "Exit codes: 0 done{paused}, 64 wrong options, 65 missing or damaged data, 70 a bug in Yanmo, 75 try "
    "again later, 78 something that this machine lacks."
)


NO_COMMANDS: Mapping[str, type[Options]] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Group:
    """A few options that a reader expects together."""

    name: str
    about: str
    options: list[dataclasses.Field[Any]]


def groups_of(cls: type) -> list[Group]:
    """Return the groups of a command's options: words or inputs, its own, those that others have too."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    words, inputs = (list(option_fields(cls, kind)) for kind in ("word", "input"))
    found = {"words": Group("words", "what is given without an option", words)} if words else {}
    about = "what it reads: a file with a reference, STAGE/KEY, latest or none"
    found |= {"inputs": Group("inputs", about, inputs)} if inputs else {}
    for part in cls.__mro__:
        own = [
            fields[n]
            for n in inspect.get_annotations(part)
            if n in fields and fields[n].metadata["kind"] not in ("input", "word")
        ]
        if own:
            about = (part.__doc__ or "").partition("\n")[0]
            if part is cls:
                about = f"options of this {'stage' if issubclass(cls, StageOptions) else 'command'} alone"
            name = getattr(part, "_group", "") or "other"
            found.setdefault(name, Group(name, about, [])).options[:0] = own
    return list(found.values())


def show_help(cls: type, argv: Sequence[str], prog: str) -> None:
    """Print what `--help [GROUP|OPTION|all]` or `--version` asks for, and end; else do nothing.

    Raises:
        SystemExit: it is printed.
        UsageError: there is no such group or option.
    """
    topic = _topic(argv)
    if topic is not None:
        _end(_page(cls, prog, topic))


def answer_help(stage: Any, commands: Mapping[str, type[Options]] = NO_COMMANDS) -> None:
    """`show_help` of a stage before what its work needs is imported: 0.2 seconds in place of 0.8.

    A wrong use of it is left to the stage itself, which says so in the way of all its errors.

    Args:
        stage: its declaration (stage/declaration.py).
        commands: subcommands that it has beside its work -> their options (`yanmo promote history`).
    """
    words, cls, prog = default_argv(None), stage.config, f"yanmo {stage.name}"
    if words and words[0] in commands:
        words, cls, prog = words[1:], commands[words[0]], f"{prog} {words[0]}"
    elif words and not words[0].startswith("-"):
        return
    with contextlib.suppress(UsageError):
        show_help(cls, words, prog)


def show_commands(commands: Mapping[str, type[Options]], argv: Sequence[str], prog: str, about: str) -> None:
    """The same of a group of commands: `--help [COMMAND|all]`."""
    topic = _topic(argv)
    if topic is None:
        return
    if topic in commands:
        _end(_page(commands[topic], f"{prog} {topic}", ""))
    if topic not in ("", "all"):
        names = ", ".join([*commands, "all"])
        raise UsageError(f"--help {brief(topic)}: expected one of {names}{did_you_mean(topic, commands)}")
    _end(_list(commands, prog, about, topic))


def _topic(argv: Sequence[str]) -> str | None:
    """Return what `--help` is asked about, "" for nothing in particular; None where it is not asked.

    Raises:
        SystemExit: `--version` is asked for, and printed.
    """
    for number, word in enumerate(argv):
        name, equals, topic = word.partition("=")
        if word == "--":
            break  # words follow
        if word == "--version":
            _end([version()])
        if name in ("-h", "--help"):
            follows = [*argv[number + 1 :], ""][0]
            return topic if equals else "" if follows.startswith("-") else follows
    return None


def version() -> str:
    """Return what `--version` prints: `yanmo 0.2.0`; says so where the package is not installed."""
    import importlib.metadata  # 15 ms, with its mail and zip readers; every command comes by this module

    try:
        return f"yanmo {importlib.metadata.version('yanmo')}"
    except importlib.metadata.PackageNotFoundError:
        return "yanmo, not installed: run from its sources"


def _end(lines: Iterable[str]) -> NoReturn:
    show("\n".join(lines))
    raise SystemExit(0)


def _list(commands: Mapping[str, type[Options]], prog: str, about: str, topic: str) -> Iterator[str]:
    yield f"usage: {prog} COMMAND [--OPTION=VALUE ...]"
    yield ""
    yield about
    yield ""
    yield f"Commands (`{prog} COMMAND --help` shows one of them, --help all shows them all):"
    for name, cls in commands.items():
        yield from _entry(name, (cls.__doc__ or "").partition("\n")[0].rstrip("."))
    yield ""
    for name, cls in commands.items() if topic else ():
        yield from _whole(cls, f"{prog} {name}")
    yield from textwrap.wrap(_EXIT_CODES.format(paused=""), _WIDTH)


def _page(cls: type, prog: str, topic: str) -> Iterator[str]:
    groups, is_stage = groups_of(cls), issubclass(cls, StageOptions)
    name = topic.strip().lstrip("-").replace("-", "_").lower()
    name += "_" * (f"{name}_" in values_of(cls))  # --for is `for_`
    if not is_stage and name in ("", "all"):
        yield from _whole(cls, prog)
        yield from textwrap.wrap(_EXIT_CODES.format(paused=""), _WIDTH)
    elif not name:
        yield from _front(cls, prog)
    elif name == "all":
        for group in groups:
            yield from _group(cls, f"{group.name}: {group.about}", group.options)
        yield from _elsewhere()
    elif shown_ones := [group for group in groups if name in _names(group)]:
        for group in shown_ones:
            is_meant = group.name.replace("-", "_") == name
            options = [each for each in group.options if is_meant or each.name == name]
            yield from _group(cls, f"{group.name}: {group.about}", options)
    elif is_stage and name in ("config", "options"):
        yield from _elsewhere(name)
    else:
        known = ["all", *(group.name for group in groups), *(flag(n)[2:] for n in values_of(cls))]
        raise UsageError(
            f"--help {brief(topic)}: expected an option, a group or all; the groups are "
            f"{', '.join(g.name for g in groups)}"
            f"{did_you_mean(name.replace('_', '-'), known)}"
        )
    if name and is_stage:
        yield from textwrap.wrap(_LEGEND, _WIDTH)


def _elsewhere(topic: str = "") -> Iterator[str]:
    """Yield what takes options of a stage from a file or a line, as a group."""
    yield "elsewhere: options in a file or a line"
    for spelled, about in _ELSEWHERE.items():
        if topic in spelled:
            yield from _entry(spelled, about)
    yield ""


def _whole(cls: type, prog: str) -> Iterator[str]:
    """Yield all of a tool: what it does, its words and its options."""
    words = [_left(cls, each) for each in option_fields(cls, "word") if each.default is REQUIRED]
    words += [f"[{_left(cls, each)}]" for each in option_fields(cls, "word") if each.default is not REQUIRED]
    required = [f for f in dataclasses.fields(cls) if f.default is REQUIRED and f.metadata["kind"] != "word"]
    words += [_left(cls, each).replace(" ", "=") for each in required]
    yield " ".join(["usage:", prog, *words, "[--OPTION=VALUE ...]"])
    yield ""
    yield from _paragraphs(cls.__doc__ or "")
    for group in groups_of(cls):
        yield from _group(cls, f"{group.name}: {group.about}", group.options)


def _paragraphs(text: str) -> Iterator[str]:
    """Yield a docstring, wrapped; what is indented stays as it is."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith(" "):
            yield from [*paragraph.splitlines(), ""]
        else:
            yield from [*textwrap.wrap(paragraph, _WIDTH), ""]


def _names(group: Group) -> set[str]:
    return {group.name.replace("-", "_"), *(option.name for option in group.options)}


def _front(cls: type, prog: str) -> Iterator[str]:
    groups = groups_of(cls)
    number = sum(len(group.options) for group in groups)
    yield f"usage: {prog} [--OPTION=VALUE ...] [--config=FILE] [--options=LINE]"
    yield ""
    yield from _paragraphs(cls.__doc__ or "")
    often = [option for group in groups for option in group.options if option.metadata["often"]]
    yield f"Options that are set often ({len(often)} of {number}):"
    for option in often:
        about = option.metadata["help"].partition("; ")[0]
        yield from _entry(_left(cls, option), about + _briefly(option))
    yield ""
    yield "All options, by group (--help GROUP shows one group, --help all shows them all):"
    for group in groups:
        yield from _entry(f"{group.name} ({len(group.options)})", group.about.rstrip("."))
    yield ""
    bundles = "--size and --preset, which win over " if "preset" in values_of(cls) else ""
    precedence = _PRECEDENCE.format(bundles=bundles)
    yield from textwrap.wrap(f"{_LEGEND} {precedence}{_EXIT_CODES.format(paused=' or paused')}", _WIDTH)


def _group(cls: type, title: str, options: Iterable[dataclasses.Field[Any]]) -> Iterator[str]:
    yield from textwrap.wrap(title, _WIDTH)
    for option in options:
        yield from _entry(_left(cls, option), _about(cls, option))
    yield ""


def _entry(left: str, right: str) -> Iterator[str]:
    """Yield a name with its explanation next to it, or below where the name is long."""
    lines = textwrap.wrap(right, _WIDTH - _INDENT)
    if len(left) + 4 > _INDENT:
        yield f"  {left}"
    else:
        yield f"  {left:<{_INDENT - 2}}{lines.pop(0)}"
    yield from (" " * _INDENT + line for line in lines)


def _about(cls: type, option: dataclasses.Field[Any]) -> str:
    """Its help, what it may be, what it is by default, and whether it belongs to the key."""
    meta, values = option.metadata, values_of(cls)[option.name]
    parts = []
    if values.choices:
        parts.append(
            ", ".join(str(choice) for choice in values.choices if choice != AUTO or not meta["auto"])
        )
    if values.type in (int, float) and _says_more(values.bounds):
        parts.append(str(values.bounds))
    if _has_default(option):
        parts.append(f"default: {_default(option)}")
    details = f" ({'; '.join(parts)})" if parts else ""
    mark = _MARKS.get(meta["kind"], "") if issubclass(cls, StageOptions) else ""
    return f"{meta['help']}{details} {mark}".strip()


def _briefly(option: dataclasses.Field[Any]) -> str:
    """Choices and default, in a few words."""
    default = AUTO if option.metadata["auto"] else _default(option)
    parts = [", ".join(option.metadata["choices"])] if option.metadata["choices"] else []
    if option.default != NONE and _has_default(option):
        parts.append(f"default: {default}")
    return f" ({'; '.join(parts)})" if parts else ""


def _has_default(option: dataclasses.Field[Any]) -> bool:
    """Return whether its default is worth showing."""
    meta = option.metadata
    is_none = any(option.default is each for each in (False, REQUIRED)) or option.default in ("", ())
    return bool(meta["auto"]) or (meta["kind"] != "input" and not is_none)


def _default(option: dataclasses.Field[Any]) -> str:
    auto, variable = option.metadata["auto"], option.metadata["variable"]
    default = f"auto: {auto}" if auto else shown(option.default)
    return f"{variable}, else {default}" if variable else default


def _says_more(bounds: Bounds) -> bool:
    """Return whether the bounds are worth showing: not just counts from 0 or 1."""
    return bounds.least not in (0, 1, -MOST) or bounds.above_least or bounds.most not in (MOST, MOST_EXACT)


def _left(cls: type, option: dataclasses.Field[Any]) -> str:
    return f"{called(cls, option.name)} {_metavar(cls, option)}".strip()


def _metavar(cls: type, option: dataclasses.Field[Any]) -> str:
    meta, values = option.metadata, values_of(cls)[option.name]
    if meta["kind"] in ("input", "word"):
        return "REF" if meta["kind"] == "input" else "..." * values.several
    if meta["metavar"]:
        return str(meta["metavar"])
    if values.type is bool:
        return "" if option.default is False and not meta["auto"] else "true|false"
    name = {int: "N", float: "X", str: "TEXT"}.get(values.type, values.type.__name__.upper())
    name = "NAME" if values.choices else name
    return f"{name},..." if values.has_commas else name
