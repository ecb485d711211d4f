"""Which models learned a text, and what to run so that the next champion has not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.shell_words import shell_line
from yanmo.formats.forbidden_text import Policy, why_forbidden
from yanmo.store.channel.takedown import TakenDown, read_takedown
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.tools.store.inventory import KeyName

_CHAIN = ("curate", "balance", "tokenize", "train", "evaluate", "promote")


@dataclass(frozen=True)
class ToRun:
    """What one channel has to do."""

    channel: str
    taken_down: TakenDown | None
    """Since when the text is on its takedown list."""
    is_champion: bool
    """Whether the model that it serves learned the text."""
    commands: list[str]


@dataclass
class Learned:
    """What became of one text."""

    directly: list[KeyName] = field(default_factory=list)
    """Models whose own training text holds it, or a copy of it."""
    by_start: list[KeyName] = field(default_factory=list)
    """Models that began from one of these."""
    tokenizers: list[KeyName] = field(default_factory=list)
    evaluation_sets: list[KeyName] = field(default_factory=list)
    to_run: list[ToRun] = field(default_factory=list)

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
        for one in self.to_run:
            serves = ", whose champion learned it" if one.is_champion else ""
            since = f" (on its takedown list since {one.taken_down.when})" if one.taken_down else ""
            yield f"to run in channel {one.channel}{serves}{since}:"
            yield from (f"    {command}" for command in one.commands)

    def as_json(self) -> dict[str, Any]:
        names = ("directly", "by_start", "tokenizers", "evaluation_sets")
        found: dict[str, Any] = {name: ["/".join(one) for one in getattr(self, name)] for name in names}
        return {"learned": found, "to_run": [asdict(one) for one in self.to_run]}


def learned(
    store: ObjectStore,
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
    found, policy = Learned(), Policy("", None, frozenset({document}))
    related = list(dict.fromkeys([*holders, *down]))
    for name in related:
        if name[0] == "train" and why_forbidden(policy, outputs[name]):
            own = _cache_of(outputs[name])
            is_own = own is not None and bool(why_forbidden(policy, own))
            (found.directly if is_own else found.by_start).append(name)
    found.evaluation_sets = [name for name in holders if name[0] == "evaluation_set"]
    found.tokenizers = [name for name in down if name[0] == "tokenizer"]
    concerned = {*found.directly, *found.by_start, *related}
    by_channel: dict[str, dict[str, KeyName]] = {}
    for name in sorted(concerned):
        for by in pointers.get(name, ()):
            channel, _, pointer = by.partition("/")
            if "/" not in pointer:
                by_channel.setdefault(channel, {})[pointer] = name
    tainted = {*found.directly, *found.by_start}
    for channel, named in sorted(by_channel.items()):
        is_champion = named.get("champion") in tainted
        commands = list(_commands(store, outputs, channel, document, named, found))
        taken = read_takedown(store, channel).get(document)
        found.to_run.append(ToRun(channel, taken, is_champion, commands[1:] if taken else commands))
    return found


def _cache_of(model: Output) -> Output | None:
    try:
        return model.input("token_cache")
    except DataError:
        return None


def _commands(
    store: ObjectStore,
    outputs: Mapping[KeyName, Output],
    channel: str,
    document: str,
    named: Mapping[str, KeyName],
    found: Learned,
) -> Iterator[str]:
    """One a line: the takedown, then every stage with the options of before."""
    place = ["--store", store.uri, "--channel", channel]
    yield shell_line(["yanmo", "channel", "takedown", document, *place, "--why", "REASON"])
    own = {name[0]: outputs[name] for name in named.values() if name in outputs}
    for stage in _CHAIN:
        words = ["yanmo", stage, *place]
        output = own.get(stage)
        if output is not None and stage != "promote" and (config := output.entries("config.yaml")):
            words += ["--config", str(output.path(config[0].path))]
        if stage == "curate":
            sources = output.manifest.inputs.get("sources", {}).get("uri", "") if output else ""
            words += ["--sources", sources or "YOUR_SOURCES"]
            if named.get("evaluation_set") in found.evaluation_sets:
                words += ["--evaluation-set", "none"]
        if stage == "tokenize" and found.tokenizers:
            words += ["--tokenizer", "none"]
        if stage == "train":
            words += ["--model", "none"]
        yield shell_line(words)
