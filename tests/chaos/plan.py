"""The plan of everything here: cases, each with a name, tried in order and written down."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chaos.start import ROOT


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
    """The results file: a JSON line for what is tried, then one a case. A run that was stopped goes on."""

    def __init__(self, path: Path, store: str, seed: int) -> None:
        """Args:
        store: kind of store; with another seed, kind or commit what is in the file is forgotten.
        """
        self.path = path
        self.head = {"store": store, "seed": seed, "commit": commit(), "machine": machine()}
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        goes_on = bool(lines) and json.loads(lines[0]) == self.head
        self.tried = [Tried(**json.loads(line)) for line in lines[1:]] if goes_on else []
        self._done = {(each.part, each.name) for each in self.tried}
        if not goes_on:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self.head) + "\n", encoding="utf-8")

    def try_all(self, cases: Iterable[Case]) -> None:
        """Try each case that was not tried before; an exception is a finding."""
        for case in cases:
            if (case.part, case.name) not in self._done:
                self._add(tried(case))

    def _add(self, new: Tried) -> None:
        self.tried.append(new)
        self._done.add((new.part, new.name))
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(new), ensure_ascii=False) + "\n")

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


def commit() -> str:
    """The commit of the code that is broken, `+` where it was changed."""
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout
    dirty = subprocess.run([*git, "status", "--porcelain", "components"], capture_output=True).stdout
    return found.strip() + ("+" if dirty else "")


def machine() -> str:
    """CPU and number of cores."""
    names = [x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")]
    name = names[0].partition(": ")[2] if names else platform.processor()
    return f"{os.cpu_count()} cores, {name}, Python {platform.python_version()}"


def say(text: str) -> None:
    """A line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
