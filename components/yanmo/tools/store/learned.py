"""Which models learned a text, and which of them are served."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from yanmo.common.errors import DataError
from yanmo.formats.learned_text import learned_by
from yanmo.store.output import Output
from yanmo.tools.store.inventory import KeyName


@dataclass
class Learned:
    """What became of one text."""

    directly: list[KeyName] = field(default_factory=list)
    """Models whose own training text holds it, or a copy of it."""
    by_start: list[KeyName] = field(default_factory=list)
    """Models that began from one of these."""
    tokenizers: list[KeyName] = field(default_factory=list)
    evaluation_sets: list[KeyName] = field(default_factory=list)
    champions: list[str] = field(default_factory=list)
    """Channels whose champion learned it."""

    def lines(self, shown: Callable[[KeyName], str]) -> Iterator[str]:
        """As a person reads it."""
        for what, names in (
            ("models that learned it", self.directly),
            ("models that began from one that learned it", self.by_start),
            ("tokenizers built from it", self.tokenizers),
            ("evaluation sets that hold it", self.evaluation_sets),
        ):
            yield f"{what}: {'none' if not names else ''}".rstrip()
            yield from (f"    {shown(name)}" for name in names)
        yield f"channels whose champion learned it: {', '.join(self.champions) or 'none'}"

    def as_json(self) -> dict[str, Any]:
        names = ("directly", "by_start", "tokenizers", "evaluation_sets")
        found: dict[str, Any] = {name: ["/".join(one) for one in getattr(self, name)] for name in names}
        return {"learned": {**found, "champions": self.champions}}


def learned(
    outputs: Mapping[KeyName, Output],
    pointers: Mapping[KeyName, Sequence[str]],
    document: str,
    holders: Sequence[KeyName],
    down: Sequence[KeyName],
) -> Learned:
    """Who learned `document`.

    Args:
        holders: outputs that hold it.
        down: all that rests on these.
    """
    found = Learned()
    for name in dict.fromkeys([*holders, *down]):
        if name[0] == "train" and learned_by(outputs[name], document):
            own = _cache_of(outputs[name])
            (found.directly if own and learned_by(own, document) else found.by_start).append(name)
    found.evaluation_sets = [name for name in holders if name[0] == "evaluation_set"]
    found.tokenizers = [name for name in down if name[0] == "tokenizer"]
    served = {by for name in (*found.directly, *found.by_start) for by in pointers.get(name, ())}
    found.champions = sorted(by.partition("/")[0] for by in served if by.endswith("/champion"))
    return found


def _cache_of(model: Output) -> Output | None:
    try:
        return model.input("token_cache")
    except DataError:
        return None
