"""What all parts of the torture share: where stores are made, the seed, and what was found so far."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servers import s3

from torture.place import FilePlace, Place, S3Place
from torture.profile import Profile, summary, take_profile
from torture.stages import ROOT, STAGES


@dataclass
class Ground:
    """One kind of store (`file` or `s3`), and a folder for everything else."""

    kind: str
    folder: Path
    seed: int
    stages: tuple[str, ...] = tuple(STAGES)
    """The stages that are run, from the first on."""
    keep: bool = False
    """Whether stores are left behind for a look."""
    server: s3.S3Server | None = None
    bucket: str = ""
    _profile: Profile | None = field(default=None, repr=False)

    def new_place(self, endpoint: str = "") -> Place:
        """An empty store; `endpoint` is another way to the S3 server."""
        if self.server is None:
            return FilePlace.new(self.folder)
        place = S3Place.new(self.server, self.bucket, self.folder)
        place.endpoint = endpoint
        return place

    @contextmanager
    def place(self, endpoint: str = "") -> Iterator[Place]:
        """An empty store that is removed afterwards."""
        place = self.new_place(endpoint)
        try:
            yield place
        finally:
            if not self.keep:
                place.remove()

    @property
    def profile(self) -> Profile:
        """The undisturbed run, made at the first call."""
        if self._profile is None:
            say(f"the undisturbed run on {self.kind} ...")
            with self.place() as place:
                self._profile = take_profile(place, self.folder, self.stages)
            say(summary(self._profile))
        return self._profile


@contextmanager
def open_ground(
    kind: str, folder: Path, seed: int, *, stages: tuple[str, ...] = tuple(STAGES), keep: bool = False
) -> Iterator[Ground]:
    """A ground of kind `file` or `s3`; for the latter a server is started unless the environment names one.

    Raises:
        RuntimeError: there is no S3 server; says why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ground = Ground(kind, folder.absolute(), seed, stages, keep)
    if kind == "s3":
        reason = s3.absent()
        if reason:
            raise RuntimeError(reason)
        ground.server = s3.borrow(f"torture-{os.getpid()}")
        ground.bucket = ground.server.new_bucket()
    try:
        yield ground
    finally:
        if ground.server is not None and not keep:
            ground.server.remove_bucket(ground.bucket)


@dataclass
class Case:
    """One thing that was tried."""

    part: str
    name: str
    outcome: str
    """What happened, in a few words."""
    findings: list[str] = field(default_factory=list)
    """What must not happen, and did."""
    skipped: bool = False
    seconds: float = 0.0


class Record:
    """The results file: read at the start, so that a stopped torture goes on; written after each case."""

    def __init__(self, path: Path, kind: str, seed: int) -> None:
        self.path = path
        head = {"store": kind, "seed": seed, "commit": commit(), "machine": machine()}
        self.value: dict[str, Any] = {**head, "journeys": [], "cases": []}
        if path.exists():
            old = json.loads(path.read_text(encoding="utf-8"))
            if {k: old.get(k) for k in ("store", "seed", "commit")} == {
                k: head[k] for k in ("store", "seed", "commit")
            }:
                self.value = old

    def add(self, what: str, value: Any) -> None:
        """Add to `journeys` or `cases`, and write the file."""
        self.value[what].append(value)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.value, ensure_ascii=False, indent=1), encoding="utf-8")
        temporary.replace(self.path)

    def has(self, part: str, name: str) -> bool:
        """Whether the case was tried before."""
        return any((c["part"], c["name"]) == (part, name) for c in self.value["cases"])

    def case(self, part: str, name: str, attempt: Callable[[], Case | tuple[str, list[str]]]) -> None:
        """Try one case, unless it was tried before; an exception is a finding."""
        if self.has(part, name):
            return
        began = time.monotonic()
        try:
            result = attempt()
            case = result if isinstance(result, Case) else Case(part, name, *result)
        except Exception as error:
            case = Case(part, name, "failed", [f"{type(error).__name__}: {error}"])
        case.seconds = round(time.monotonic() - began, 1)
        self.add("cases", vars(case))
        mark = "skip" if case.skipped else "BAD" if case.findings else "ok"
        say(f"{part}: {name}: {mark}: {case.outcome} ({case.seconds:.0f} s)")
        for finding in case.findings:
            say(f"    {finding[:1500]}")


def commit() -> str:
    """The commit of the code under torture, `+` where it was changed."""
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run(
        [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    dirty = subprocess.run([*git, "status", "--porcelain", "components"], capture_output=True).stdout
    return found + ("+" if dirty else "")


def machine() -> str:
    """CPU and number of cores."""
    names = [x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")]
    name = names[0].partition(": ")[2] if names else platform.processor()
    return f"{os.cpu_count()} cores, {name}, Python {platform.python_version()}"


def say(text: str) -> None:
    """A line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
