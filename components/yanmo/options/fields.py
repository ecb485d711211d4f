"""Options of stages and tools: the dataclass of a command is the only list of them.

Flags, the YAML file, the KFP component's parameters, the run form, `--help` and what enters a key
are all made from the dataclass, so adding an option is a one-line diff:

    steps: int = opt(450, "optimizer steps", least=1, form="train_steps")

A stage with many options derives its config from a few small dataclasses, one a group of `--help`.
A tool's dataclass may also have words that are given without an option: `what: str = word("an output")`.

Standard library only, so that every image and the pipeline compiler can import a `config.py`.

Alternative not taken: pydantic. Options here are scalars or tuples of them, and the compiler and both
images stay free of a compiled dependency. Nor argparse: its parsed values have no types, and it takes
`--OPTION=--` for no text at all.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from yanmo.common.errors import UsageError
from yanmo.common.names import NONE as NONE
from yanmo.options.values import AUTO as AUTO
from yanmo.options.values import Values, WrongValue, bounds

Kind = Literal["semantic", "execution", "environment", "input", "word"]
"""semantic: part of the key. execution: recorded, not in the key. environment: neither.
input: a reference to another stage's output; its content digest is part of the key.
word: given without an option. Of a tool's options only `word` says something."""

REQUIRED: Any = dataclasses.MISSING
"""Default of what must be given."""

Scalar = str | int | float | bool


def opt(
    default: Any,
    help: str,
    *,
    kind: Kind = "semantic",
    form: str = "",
    suggested: Sequence[str] = (),
    often: bool = False,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
    words: Mapping[str, int] | None = None,
    auto: str = "",
    by_machine: bool = False,
    phase: str = "",
    trial: Any = None,
    metavar: str = "",
    variable: str = "",
    later: bool = False,
    free: bool = False,
) -> Any:
    """Declare one option.

    Its type is that of the field: bool, int, float, str, a class that is made from a text (`Age("7d")`; its
    `expected` says what it takes, and it is shown as `str`), or a tuple of one of them.

    Args:
        default: value when nothing else is given.
        help: one line with the unit; ASCII, as it is stored in KFP's database.
        kind: whether it belongs to the key (see `Kind`).
        form: its name on the run form; empty where it is not one of its fields. Flags and files always take
            it.
        suggested: values of a drop-down on the run form where others are allowed elsewhere.
        often: whether people set it often: `--help` shows it without being asked for its group.
        least, above, most, below: bounds of a number; by default 0 to 10^9.
        choices: the only values allowed; a drop-down on the run form.
        words: words that may be given instead of a number.
        auto: what the option becomes if it is not given, for `--help`; `{default}` in it is the default.
            If set, the values `auto` and "" mean "not given here", so that a lower source decides.
        by_machine: whether the machine decides it if it is not given.
        phase: the first phase of a stage with phases that depends on it; "" is the first of all.
        trial: its value in a trial of a few steps; None for the same.
        metavar: what `--help` shows for its value, where the type does not say enough.
        variable: an environment variable that gives the default where it is set.
        later: whether there were outputs before there was this option: at its default it is left out of their
            keys, which stay what they were; so its default must never change, and must give what they hold
            byte for byte.
        free: whether it may hold addresses with secrets, as it is kept and shown nowhere.
    """
    meta = {
        "help": help,
        "kind": kind,
        "form": form,
        "suggested": tuple(suggested),
        "often": often,
        "choices": tuple(choices),
        "words": dict(words or {}),
        "bounds": bounds(least, above, most, below),
        "auto": auto.format(default=shown(default)),
        "by_machine": by_machine,
        "phase": phase,
        "trial": trial,
        "metavar": metavar,
        "variable": variable,
        "later": later,
        "free": free,
    }
    return dataclasses.field(default=default, metadata=meta)


def input_ref(
    help: str,
    *,
    stages: Sequence[str],
    optional: bool = False,
    default: str = "",
    keyed: bool = True,
    also: Sequence[str] = (),
    inside: str = "",
) -> Any:
    """Declare an input: a reference to an output of one of `stages`.

    Its flag takes what names an output (yanmo.store.named); empty means what `--inputs` says.

    Args:
        help: one line, ASCII.
        stages: producers in order of preference; `latest` follows the channel's pointer of the
            first of them that has one.
        optional: whether the stage can do without it.
        default: `none` for an input that is used only when it is asked for.
        keyed: False where the stage's own output does not depend on it (only a part's does).
        also: stages whose outputs may be given by hand as well; no pointer to them is followed.
        inside: the input whose reference brings this one along where a pipeline hands it on.
    """
    meta = {
        "stages": tuple(stages),
        "optional": optional,
        "keyed": keyed,
        "also": tuple(also),
        "inside": inside,
    }
    declared = opt(default, help, kind="input", often=True)
    return dataclasses.field(default=default, metadata={**declared.metadata, **meta})


def word(help: str, default: Any = REQUIRED, *, free: bool = False) -> Any:
    """Declare what is given without an option, in this order; the last may be a tuple, of all that follow."""
    return opt(default, help, kind="word", free=free)


def flag(name: str) -> str:
    """Return the command-line flag of the option called `name`; `for_` is --for."""
    return "--" + name.rstrip("_").replace("_", "-")


def called(cls: type, name: str) -> str:
    """As a person calls an option or a word of `cls`: --older-than, WHAT."""
    return name.upper() if name in names_of(cls, kind="word") else flag(name)


def by_kind(config: Any, *kinds: Kind) -> dict[str, Scalar]:
    """The options of `config` that are of one of `kinds`, by name, sorted; of `later` ones, those that are
    not at their default."""
    declared, names = type(config).__dataclass_fields__, sorted(names_of(type(config), kind=kinds))
    found = {name: getattr(config, name) for name in names}
    return {
        name: value
        for name, value in found.items()
        if not (declared[name].metadata["later"] and value == declared[name].default)
    }


def names_of(cls: type, **wanted: Any) -> list[str]:
    """The options of `cls` whose declaration says so: `names_of(cls, kind=("semantic",), by_machine=True)`.

    A tuple stands for any of its values.
    """
    found = {key: value if isinstance(value, tuple) else (value,) for key, value in wanted.items()}
    return [
        field.name
        for field in dataclasses.fields(cls)
        if all(field.metadata[key] in values for key, values in found.items())
    ]


def option_fields(cls: type, *kinds: Kind) -> Iterator[dataclasses.Field[Any]]:
    """Yield the fields of `cls` of one of `kinds` (all when none is given), in order of declaration."""
    for field in dataclasses.fields(cls):
        if not kinds or field.metadata["kind"] in kinds:
            yield field


@functools.cache
def values_of(cls: type) -> dict[str, Values]:
    """Return what values each option of `cls` can have."""
    hints, found = get_type_hints(cls), {}
    for field in dataclasses.fields(cls):
        hint, meta = hints[field.name], field.metadata
        several = get_origin(hint) is tuple
        found[field.name] = Values(
            type=get_args(hint)[0] if several else hint,
            several=several,
            bounds=meta["bounds"],
            choices=meta["choices"],
            words=meta["words"],
            takes_auto=bool(meta["auto"]),
            is_address=meta["metavar"] == "URL",
            is_free=meta["free"],
        )
    return found


def shown(value: Any) -> str:
    """Return a value as a person reads it, in `--help` or on a page."""
    return repr(value) if value == "" else spelled(value)


def spelled(value: Any) -> str:
    """Return a value as a flag takes it."""
    if isinstance(value, tuple):
        return ",".join(map(spelled, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


class Contradiction(UsageError):
    """Values of which each one is good, and which cannot be together."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """A group of options: `class Hours(Options, group="hours")` names it, its docstring says what it is."""

    def __init_subclass__(cls, group: str = "", **others: Any) -> None:
        super().__init_subclass__(**others)
        cls._group = group  # type: ignore[attr-defined]

    def __post_init__(self) -> None:
        """Refuse values that an option cannot have, then options that contradict each other.

        Raises:
            UsageError: the first of them; names the option, what was expected and what was found.
            Contradiction: the first of those.
        """
        mine: Any = type(self)
        for name, values in values_of(mine).items():
            value = getattr(self, name)
            for text in value if values.several and isinstance(value, tuple) else (value,):
                if isinstance(text, str):
                    try:
                        values.refuse_secrets(text)
                    except WrongValue as error:
                        raise UsageError(f"{called(mine, name)} {error}") from None
            if not values.fits(value):
                raise UsageError(f"{called(mine, name)} {WrongValue(values.expected, value)}")
        for cls in reversed(mine.__mro__):
            for problem in cls.__dict__.get("contradictions", _none)(self):
                raise Contradiction(problem)

    @classmethod
    def bundles(cls, values: dict[str, Any]) -> Mapping[str, Scalar]:
        """Options that others of `values` stand for (a preset); they win over defaults only.

        Raises:
            ValueError: there is no such bundle.
        """
        return {}

    @classmethod
    def bundled_by(cls, values: dict[str, Any]) -> str:
        """Return which of `values` gave the bundles, as the beginning of a message about what is in them."""
        return ""

    @classmethod
    def left_open(cls, values: dict[str, Any]) -> dict[str, Scalar]:
        """Values of options that are not given, where they follow from others of `values`."""
        return {}

    def is_changed(self, name: str) -> bool:
        """Return whether an option has another value than its default."""
        return bool(getattr(self, name) != type(self).__dataclass_fields__[name].default)


def _none(options: Options) -> tuple[str, ...]:
    return ()


class Only:
    """Options of which only some can be read: those in the key of what is made from them."""

    def __init__(self, options: Options, names: set[str]) -> None:
        self._options, self._names = options, names

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            raise AttributeError(f"option {name} is not in the key of what is being made: see its `phase`")
        return getattr(self._options, name)


def default_argv(argv: Sequence[str] | None) -> Sequence[str]:
    """`argv`, or the process's own arguments."""
    return sys.argv[1:] if argv is None else argv
