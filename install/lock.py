"""`make lock`: resolves pyproject.toml for every supported machine and writes constraints/*.txt with hashes.

    make lock [UPGRADE="NAME ..."]

Versions that are locked stay as they are as long as pyproject.toml allows; UPGRADE lets packages move.
The machines are those of pyproject.toml's [tool.uv]; every package must have a wheel for each, or be one of
FROM_SOURCE.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from locks import FILES, FOLDER, Pin, read_lock, read_pins, write_lock
from packaging.markers import Marker
from plan import TORCH_INDEX

ROOT = FOLDER.parent
FROM_SOURCE = ("deepspeed", "jieba", "kfp-server-api")
"""They have no wheels; nothing in them is compiled."""
PYTHONS = (11, 12, 13)
LINUX, MAC = "sys_platform == 'linux'", "sys_platform == 'darwin'"
MACHINES = [
    {
        **{"sys_platform": system, "platform_machine": machine, "python_full_version": f"3.{minor}.0"},
        **{"python_version": f"3.{minor}", "implementation_name": "cpython"},
        "platform_python_implementation": "CPython",
    }
    for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
    for minor in PYTHONS
]
"""What pyproject.toml's [tool.uv] names, as `packaging` reads it."""


def main() -> None:
    """Write all lock files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--upgrade", nargs="*", default=[], metavar="NAME", help="packages that may move")
    move = set(parser.parse_args().upgrade)
    known = [pin for name in ("base", "cuda") for pin in read_lock(name) if pin.name not in move]
    whole = _resolved("dev", known)
    torch = [pin for pin in whole if pin.name == "torch"]
    with_cuda = {"torch", *_only_for_cuda(whole)}
    write_lock("base", [pin for pin in whole if pin.name not in with_cuda])
    write_lock("cuda", [replace(pin, marker=pin.marker or LINUX) for pin in whole if pin.name in with_cuda])
    write_lock("cpu", _without_cuda(torch[0]))
    for extra in ("data", "train", "cluster"):
        write_lock(extra, [pin for pin in _resolved(extra, whole) if pin.name not in with_cuda])
    there = {pin.name for pin in whole}
    for extra in ("manifests", "sinks"):
        write_lock(extra, [pin for pin in _resolved(extra, whole) if pin.name not in there])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tools = [*project["build-system"]["requires"], "setuptools", "wheel"]
    write_lock("build", _compiled(tools, [*whole, *read_lock("build")], move))
    (uv,) = read_lock("uv")
    write_lock("uv", _compiled(["uv" if "uv" in move else f"uv=={uv.version}"], [], move))
    print(f"wrote {', '.join(f'constraints/{name}.txt' for name in FILES)}")


def _resolved(extra: str, known: list[Pin]) -> list[Pin]:
    return _uv(["pyproject.toml", "--extra", extra], known)


def _compiled(requirements: list[str], known: list[Pin], move: set[str]) -> list[Pin]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "wanted.in")
        path.write_text("\n".join(requirements), encoding="utf-8")
        return _uv([str(path)], [pin for pin in known if pin.name not in move])


def _uv(what: list[str], known: list[Pin]) -> list[Pin]:
    """Pins for all machines; those known are kept where they can be."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.txt")
        out.write_text("\n".join(line for pin in known for line in pin.lines()) + "\n", encoding="utf-8")
        built = [word for name in FROM_SOURCE for word in ("--no-binary", name)]
        command = [
            str(Path(sys.executable).with_name("uv")),
            "pip",
            "compile",
            *what,
            "--universal",
            "--quiet",
        ]
        command += ["--generate-hashes", "--no-header", "--only-binary", ":all:", *built, "-o", str(out)]
        if subprocess.run(command, cwd=ROOT).returncode:
            sys.exit(f"uv could not resolve {' '.join(what)}: see above")
        return [
            replace(pin, marker=shortest(pin.marker)) for pin in read_pins(out.read_text(encoding="utf-8"))
        ]


def shortest(marker: str) -> str:
    """A condition that says the same on every supported machine; "" where it holds on all."""
    wanted = [Marker(marker).evaluate(machine) if marker else True for machine in MACHINES]
    for simple in ("", LINUX, MAC, f"{LINUX} and platform_machine == 'x86_64'"):
        if wanted == [not simple or Marker(simple).evaluate(machine) for machine in MACHINES]:
            return simple
    return marker


def _only_for_cuda(pins: list[Pin]) -> set[str]:
    """What torch needs, directly or not, of NVIDIA's and of triton; what others need too is not among it."""
    found = {"torch"}
    while more := {
        pin.name
        for pin in pins
        if re.match(r"nvidia-|cuda-|triton$", pin.name) and pin.needed_by <= found and pin.name not in found
    }:
        found |= more
    return found - {"torch"}


def _without_cuda(torch: Pin) -> list[Pin]:
    """torch's build for CPUs, with the index's hashes; without the index, those of the last time."""
    version = f"{torch.version}+cpu"
    page = urllib.parse.urljoin(TORCH_INDEX + "/", "torch/")
    try:
        with urllib.request.urlopen(page, timeout=20) as answer:
            hashes = tuple(sorted(cpu_hashes(answer.read().decode(), version)))
        if not hashes:
            sys.exit(f"expected wheels of torch {version} with sha256 at {page}, found none")
    except (urllib.error.URLError, OSError) as error:
        before = [pin for pin in read_lock("cpu") if pin.version == version]
        if not before:
            sys.exit(
                f"torch {version}: {page} cannot be read ({error}); constraints/cpu.txt has no such version"
            )
        hashes = before[0].hashes
        print(
            f"{page} cannot be read ({error}): the hashes of torch {version} stay as they were",
            file=sys.stderr,
        )
    return [Pin("torch", version, LINUX, hashes), replace(torch, marker=MAC)]


def cpu_hashes(page: str, version: str) -> Iterator[str]:
    """sha256 of a version's wheels for supported machines, from a page of an index (PEP 503)."""
    pythons = "|".join(f"cp3{minor}" for minor in PYTHONS)
    wheel = rf"torch-{re.escape(version)}-({pythons})-\1-manylinux_\w+_(x86_64|aarch64)\.whl"
    for link in re.findall(r"""href=["']([^"']+)["']""", page):
        path, _, digest = urllib.parse.unquote(link).partition("#")
        if re.fullmatch(wheel, path.rpartition("/")[2]) and re.fullmatch(r"sha256=[0-9a-f]{64}", digest):
            yield digest.replace("=", ":")


if __name__ == "__main__":
    main()
