"""Reads and writes the lock files of constraints/: pinned packages, each with the sha256 of its files.

What they are for stands once, in `FILES`. The format is pip's: a requirement, its hashes below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "constraints"
FILES = {
    "base": "Everything that `make install` installs, but for torch: cpu.txt or cuda.txt",
    "cpu": "torch without CUDA: from torch's own index on Linux, from PyPI on a Mac",
    "cuda": "torch as PyPI has it for Linux, with CUDA, and what it needs of NVIDIA's",
    "data": "The extra `data`, for the image of the data stages",
    "train": "The extra `train`, for its image, but for torch: cpu.txt or cuda.txt",
    "cluster": "The extra `cluster`, which holds `pipeline`, for the image of what works with a cluster",
    "manifests": "The extra `manifests`, for the tests of manifests/: what it needs beside base.txt",
    "sinks": "The extra `sinks`, for the tests of sinks: what it needs beside base.txt",
    "build": "What builds this project and its dependencies that come as sources",
    "uv": "The installer",
}


@dataclass(frozen=True)
class Pin:
    """One version of a package."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    needed_by: frozenset[str] = frozenset()

    def lines(self) -> Iterator[str]:
        """As pip reads it."""
        marker = f" ; {self.marker}" if self.marker else ""
        yield " \\\n".join(
            [f"{self.name}=={self.version}{marker}", *(f"    --hash={h}" for h in self.hashes)]
        )


def read_pins(text: str) -> list[Pin]:
    """The pins of a lock file.

    Raises:
        ValueError: a line is neither a pin, a hash nor a comment.
    """
    pins = []
    for block in re.split(r"\n(?=[^\s#])", "\n" + text):
        comments = re.findall(r"^\s*#(?: {3}| via)?(.*)", block, re.MULTILINE)
        block = re.sub(r"^\s*#.*\n?", "", block, flags=re.MULTILINE).replace("\\\n", " ").strip()
        if not block:
            continue
        found = re.fullmatch(r"([\w.-]+)==([^\s;]+)(?: *; *(.*?))?((?: +--hash=\S+)*)", block)
        if not found:
            raise ValueError(f"expected name==version with hashes, found {block[:200]!r}")
        hashes = tuple(sorted(re.findall(r"--hash=(\S+)", found[4])))
        needed_by = frozenset(c.strip() for c in comments if c.strip())
        pins.append(Pin(found[1], found[2], found[3] or "", hashes, needed_by))
    return pins


def read_lock(name: str) -> list[Pin]:
    """The pins of constraints/<name>.txt."""
    return read_pins((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))


def write_lock(name: str, pins: Iterable[Pin]) -> None:
    """Write constraints/<name>.txt."""
    lines = [f"# {FILES[name]}. Written by `make lock`: CONTRIBUTING.md"]
    lines += [line for pin in pins for line in pin.lines()]
    (FOLDER / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
