"""`--help` of a stage: what people set often and the names of the groups; `--help GROUP`, `--help all`."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from yanmo.common.answers import show
from yanmo.common.errors import UsageError
from yanmo.common.version import version
from yanmo.options.fields import NONE, Group, flag, groups_of, shown, values_of
from yanmo.options.nearest import did_you_mean
from yanmo.options.values import AUTO, MOST, MOST_EXACT, Bounds

_WIDTH, _INDENT = 100, 26
_MARKS = {"execution": "[not in the key]", "environment": "[not recorded]"}
_LEGEND = (
    "The key names an output: a run whose key is already in the store makes nothing again. Every option is "
    "part of it except those marked [not in the key] (how the output is made; recorded with it) and [not "
    "recorded]."
)
_EPILOG = (
    "A flag wins over --config (a YAML file, or YAML text), which wins over {bundles}the default. Exit "
    "codes: 0 done or paused, 64 wrong options, 65 missing or damaged data, 70 a bug in Yanmo, 75 try again "
    "later, 78 something that this machine lacks."
)


def show_help(cls: type, argv: Sequence[str], prog: str) -> None:
    """Print what `--help [GROUP|OPTION|all]` or `--version` asks for, and end; else do nothing.

    Raises:
        SystemExit: it is printed.
        UsageError: there is no such group or option.
    """
    for number, word in enumerate(argv):
        name, equals, topic = word.partition("=")
        if word == "--version":
            show(version())
        elif name in ("-h", "--help"):
            follows = [*argv[number + 1 :], ""][0]
            topic = topic if equals else "" if follows.startswith("-") else follows
            show("\n".join(_page(cls, prog, topic)))
        else:
            continue
        raise SystemExit(0)


def _page(cls: type, prog: str, topic: str) -> Iterator[str]:
    groups = groups_of(cls)
    name = topic.strip().lstrip("-").replace("-", "_").lower()
    if not name:
        yield from _front(cls, prog)
    elif name == "all":
        for group in groups:
            yield from _group(cls, f"{group.name}: {group.about}", group.options)
    elif name in {group.name.replace("-", "_") for group in groups}:
        group = next(group for group in groups if group.name.replace("-", "_") == name)
        yield from _group(cls, f"{group.name}: {group.about}", group.options)
        if name in values_of(cls) and name not in {f.name for f in group.options}:
            yield from _option(cls, groups, name)
    elif name in values_of(cls):
        yield from _option(cls, groups, name)
    else:
        known = ["all", *(group.name for group in groups), *(n.replace("_", "-") for n in values_of(cls))]
        raise UsageError(
            f"--help {topic}: expected an option, a group or all; the groups are "
            f"{', '.join(g.name for g in groups)}"
            f"{did_you_mean(name.replace('_', '-'), known)}"
        )
    if name:
        yield from textwrap.wrap(_LEGEND, _WIDTH)


def _option(cls: type, groups: list[Group], name: str) -> Iterator[str]:
    for group in groups:
        found = [option for option in group.options if option.name == name]
        if found:
            yield from _group(cls, f"in group {group.name}:", found)


def _front(cls: type, prog: str) -> Iterator[str]:
    groups = groups_of(cls)
    number = sum(len(group.options) for group in groups)
    yield f"usage: {prog} [--OPTION=VALUE ...] [--config=FILE]"
    yield ""
    yield from textwrap.wrap((cls.__doc__ or "").replace("\n", " "), _WIDTH)
    yield ""
    often = [option for group in groups for option in group.options if option.metadata["often"]]
    yield f"Options that are set often ({len(often)} of {number}):"
    for option in often:
        brief = option.metadata["help"].partition("; ")[0]
        yield from _entry(f"{flag(option.name)} {_metavar(cls, option)}", brief + _briefly(option))
    yield ""
    yield "All options, by group (--help GROUP shows one group, --help all shows them all):"
    for group in groups:
        yield from _entry(f"{group.name} ({len(group.options)})", group.about.rstrip("."))
    yield ""
    bundles = "--size and --preset, which win over " if "preset" in values_of(cls) else ""
    yield from textwrap.wrap(f"{_LEGEND} {_EPILOG.format(bundles=bundles)}", _WIDTH)


def _group(cls: type, title: str, options: Iterable[dataclasses.Field[Any]]) -> Iterator[str]:
    yield from textwrap.wrap(title, _WIDTH)
    for option in options:
        yield from _entry(f"{flag(option.name)} {_metavar(cls, option)}", _about(cls, option))
    yield ""


def _entry(left: str, right: str) -> Iterator[str]:
    """A name with its explanation next to it, or below where the name is long."""
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
    if meta["auto"] or (meta["kind"] != "input" and option.default != ""):
        parts.append(f"default: {_default(option)}")
    details = f" ({'; '.join(parts)})" if parts else ""
    return f"{meta['help']}{details} {_MARKS.get(meta['kind'], '')}".strip()


def _briefly(option: dataclasses.Field[Any]) -> str:
    """Choices and default, in a few words."""
    default = AUTO if option.metadata["auto"] else shown(option.default)
    parts = [", ".join(option.metadata["choices"])] if option.metadata["choices"] else []
    if option.metadata["kind"] != "input" and option.default not in ("", NONE):
        parts.append(f"default: {default}")
    return f" ({'; '.join(parts)})" if parts else ""


def _default(option: dataclasses.Field[Any]) -> str:
    auto = option.metadata["auto"]
    return f"auto: {auto}" if auto else shown(option.default)


def _says_more(bounds: Bounds) -> bool:
    """Whether the bounds are worth showing: not just counts from 0 or 1."""
    return bounds.least not in (0, 1) or bounds.above_least or bounds.most not in (MOST, MOST_EXACT)


def _metavar(cls: type, option: dataclasses.Field[Any]) -> str:
    if option.metadata["kind"] == "input":
        return "REF"
    values = values_of(cls)[option.name]
    return "NAME" if values.choices else {bool: "true|false", int: "N", float: "X"}.get(values.type, "TEXT")
