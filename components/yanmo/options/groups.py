"""Options in groups, as `--help` shows them."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from yanmo.options.fields import option_fields
from yanmo.options.shared import StageOptions


@dataclasses.dataclass(frozen=True)
class Group:
    """A few options that a reader expects together."""

    name: str
    about: str
    options: list[dataclasses.Field[Any]]


def groups_of(cls: type) -> list[Group]:
    """The groups of a command's options: its words or inputs, its own, and those that others have too."""
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
