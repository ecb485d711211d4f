"""Which options of some runs differ, and what all of them have in common."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from yanmo.options.fields import shown
from yanmo.store.output import Output
from yanmo.tools.runs.gather import FOLLOWED, TRAIN, Run, described_input

ABSENT = "-"
LOST = "lost"


@dataclass(frozen=True)
class Value:
    """What one run has for one option or input."""

    plain: Any
    """As it is in the manifest; of an input a few words."""
    identity: bytes
    """Equal where nothing differs; of an input its content."""

    def __str__(self) -> str:
        if isinstance(self.plain, str):
            return shown(self.plain)
        return json.dumps(self.plain, ensure_ascii=False)


@dataclass(frozen=True)
class Comparison:
    """The options of several runs."""

    by_run: list[dict[str, Value]]
    """`train.seed` -> value, of each run."""
    differing: list[str]
    """Names with two values or more among the runs."""
    same: dict[str, Value]
    """Names that each run whose chain is whole has, with one value."""
    in_some: list[str]
    """Names with one value, which some runs do not have."""

    def cell(self, number: int, run: Run, name: str) -> str:
        """What a table says for the run `number`."""
        value = self.by_run[number].get(name)
        if value is None:
            return ABSENT if run.is_whole or name.partition(".")[0] in run.chain else LOST
        return str(value)

    def identity(self, number: int, name: str) -> bytes | None:
        """Equal where two runs do not differ in `name`; None where the run `number` does not have it."""
        value = self.by_run[number].get(name)
        return value.identity if value else None

    def counts(self) -> dict[str, int]:
        """Stage -> how many of its options are the same."""
        return dict(Counter(name.partition(".")[0] for name in self.same))


def compare_options(runs: Sequence[Run]) -> Comparison:
    """The options of train and of what its text came from, run by run."""
    by_run = [_options(run) for run in runs]
    whole = [options for options, run in zip(by_run, runs, strict=True) if run.is_whole]
    names = sorted({name for options in by_run for name in options}, key=_rank)
    differing, same, in_some = list[str](), dict[str, Value](), list[str]()
    for name in names:
        values = [options[name] for options in by_run if name in options]
        if len({value.identity for value in values}) > 1:
            differing.append(name)
        elif all(name in options for options in whole):
            same[name] = values[0]
        else:
            in_some.append(name)
    return Comparison(by_run, differing, same, in_some)


def labels(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Headings: `seed` for `train.seed`, the whole name where another heading is the same."""
    short = [name.partition(".")[2] for name in names]
    twice = Counter([*short, *taken])
    return [name if twice[one] > 1 else one for name, one in zip(names, short, strict=True)]


def _options(run: Run) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for stage, output in run.chain.items():
        manifest = output.manifest
        plain = {**manifest.options, "revision": manifest.revision}
        found |= {f"{stage}.{name}": Value(value, _as_json(value)) for name, value in plain.items()}
        found |= {f"{stage}.{name}": value for name, value in _inputs(run, output).items()}
    return found


def _inputs(run: Run, output: Output) -> dict[str, Value]:
    """The inputs that no option of an earlier stage explains."""
    found = {}
    for name, value in output.manifest.inputs.items():
        if not value:
            found[name] = Value("none", b"")
        elif value.get("stage") in FOLLOWED:
            continue
        elif name == "tokenizer" and output.manifest.stage == "tokenize" and run.own_tokenizer:
            found[name] = Value("its own", b"own")
        else:
            found[name] = Value(described_input(value), value["content_digest"].encode())
    return found


def _as_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _rank(name: str) -> tuple[int, str]:
    stage = name.partition(".")[0].rstrip("0123456789")
    order = (TRAIN, *FOLLOWED)
    return order.index(stage) if stage in order else len(order), name
