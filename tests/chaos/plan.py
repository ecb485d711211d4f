"""The plan of everything here: cases, each with a name, tried in order and written down."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from yanmo.common.made_by import made_by


class Skip(Exception):
    """This machine cannot try the case; says why."""


@dataclass(frozen=True)
class Case:
    """Something that is tried."""

    part: str
    name: str
    attempt: Callable[[], tuple[str, list[str]]]
    """Returns what happened, in a few words, and what must not happen and did. Raises Skip."""


@dataclass
class Tried:
    """How a case went."""

    part: str
    name: str
    outcome: str
    findings: list[str] = field(default_factory=list)
    skipped: bool = False
    seconds: float = 0.0


class Record:
    """The results file: a JSON line for what is tried, then one a case."""

    def __init__(self, path: Path, store: str, seed: int) -> None:
        self.path, self.tried = path, list[Tried]()
        self.head = {"store": store, "seed": seed, **made_by()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.head) + "\n", encoding="utf-8")

    def try_all(self, cases: Iterable[Case]) -> None:
        """Try each case; an exception is a finding."""
        for case in cases:
            self.tried.append(tried(case))
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(self.tried[-1]), ensure_ascii=False) + "\n")

    @property
    def findings(self) -> list[str]:
        return [f"{each.part}: {each.name}: {found}" for each in self.tried for found in each.findings]

    def table(self) -> str:
        """Parts of many cases have one line and those that are bad; of others each case has a line."""
        lines = [" ".join(f"{name} {value}" for name, value in self.head.items())]
        for part in dict.fromkeys(each.part for each in self.tried):
            mine = [each for each in self.tried if each.part == part]
            bad = [each for each in mine if each.findings]
            lines.append(
                f"{part}: {len(mine)} tried, {len(bad)} bad, {sum(x.skipped for x in mine)} left out"
            )
            for each in mine if len(mine) <= 20 else bad:
                lines.append(f"  {each.name:<44} {'BAD' if each.findings else each.outcome}"[:160])
        return "\n".join(lines)


def tried(case: Case) -> Tried:
    """Try one case, and say how it went."""
    began = time.monotonic()
    try:
        result = Tried(case.part, case.name, *case.attempt())
    except Skip as reason:
        result = Tried(case.part, case.name, f"left out: {reason}", skipped=True)
    except Exception as error:
        result = Tried(case.part, case.name, "failed", [f"{type(error).__name__}: {error}"])
    result.seconds = round(time.monotonic() - began, 1)
    bad = "BAD: " if result.findings else ""
    say(f"{case.part}: {case.name}: {bad}{result.outcome} ({result.seconds:.0f} s)")
    for finding in result.findings:
        say(f"    {finding[:1500]}")
    return result


def say(text: str) -> None:
    """A line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
