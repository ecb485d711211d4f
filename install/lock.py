"""`make lock`: resolves pyproject.toml for every supported machine and writes constraints/*.txt with hashes.

    make lock [UPGRADE="NAME ..."]

Versions that are locked stay as they are as long as pyproject.toml allows; UPGRADE lets packages move. The
machines are those of pyproject.toml's [tool.uv]; every package must have a wheel for each, or be one of
FROM_SOURCE. The format is pip's: a requirement, its hashes below it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

from installer import ROOT, TORCH_INDEX

FOLDER = ROOT / "constraints"
FILES = {
    "base": "Everything that `make install` installs, but for torch: cpu.txt or cuda.txt",
    "cpu": "torch without CUDA: from torch's own index on Linux, from PyPI on a Mac",
    "cuda": "torch as PyPI has it for Linux, with CUDA, and what it needs of NVIDIA's",
    "data": "The extra `data`, for the image of the data stages",
    "train": "The extra `train`, for its image, but for torch: cpu.txt or cuda.txt",
    "cluster": "The extra `cluster`, which holds `pipeline`, for the image of what works with a cluster",
    "ray": "The extra `ray`, which holds `data`: for the image data-ray, and tests",
    "manifests": "The extra `manifests`, for the tests of manifests/: what it needs beside base.txt",
    "sinks": "The extra `sinks`, for the tests of sinks: what it needs beside base.txt",
    "docs": "The extra `docs`, for `make docs`: what it needs beside base.txt",
    "examples": "The extra `examples`, for the notebook: what it needs beside base.txt",
    "build": "What builds this project and its dependencies that come as sources",
    "uv": "The installer",
}
FROM_SOURCE = ("deepspeed", "jieba", "kfp-server-api")
"""They have no wheels; nothing in them is compiled."""
LINUX, MAC = "sys_platform == 'linux'", "sys_platform == 'darwin'"
_LINUXES = "(platform_machine == 'aarch64' and sys_platform == 'linux') or (platform_machine == 'x86_64' and "
_LINUXES += "sys_platform == 'linux')"
_SHORTER = {
    "python_full_version < '3.14' and ": "",
    "implementation_name != 'PyPy' and ": "",
    " and platform_python_implementation != 'PyPy'": "",
    f" ; (platform_machine == 'arm64' and sys_platform == 'darwin') or {_LINUXES}": "",
    _LINUXES: LINUX,
}
"""Conditions as uv writes them for the machines of [tool.uv], and what says the same on these."""
_OF_CUDA = re.compile(r"torch|triton|cuda-.*|nvidia-(?!ml-py).*")
Pins = dict[str, str]
"""Name -> its requirement and hashes, as they stand in a lock file."""


def main() -> None:
    """Write all lock files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--upgrade", nargs="*", default=[], metavar="NAME", help="packages that may move")
    move = set(parser.parse_args().upgrade)
    known = {n: t for lock in ("base", "cuda") for n, t in read_pins(lock).items() if n not in move}
    whole = resolve(["pyproject.toml", "--extra", "dev"], known)
    _write("base", whole, lambda name: not _OF_CUDA.fullmatch(name))
    _write("cuda", {n: _on_linux(t) for n, t in whole.items()}, lambda name: bool(_OF_CUDA.fullmatch(name)))
    _write_cpu(whole["torch"])
    for extra in ("data", "train", "cluster", "ray"):
        found = resolve(["pyproject.toml", "--extra", extra], whole)
        _write(extra, found, lambda name: not _OF_CUDA.fullmatch(name))
    for extra in ("manifests", "sinks", "docs", "examples"):
        found = resolve(["pyproject.toml", "--extra", extra], {**read_pins(extra), **whole})
        _write(extra, found, lambda name: name not in whole)
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    _write("build", _compiled([*needs, "setuptools", "wheel"], {**read_pins("build"), **whole}))
    _write("uv", _compiled(["uv"], {} if "uv" in move else read_pins("uv")))
    print(f"wrote {', '.join(f'constraints/{name}.txt' for name in FILES)}")


def read_pins(lock: str) -> Pins:
    """The pins of constraints/<lock>.txt."""
    return _pins_in((FOLDER / f"{lock}.txt").read_text(encoding="utf-8"))


def resolve(what: list[str], known: Pins, *more: str) -> Pins:
    """Pins for all machines; those known are kept where they can be.

    Args:
        what: files of requirements, as `uv pip compile` takes them.
        more: options of its.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.txt")
        out.write_text("".join(known.values()), encoding="utf-8")
        built = [word for name in FROM_SOURCE for word in ("--no-binary", name)]
        uv = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--universal", "--quiet"]
        uv += ["--generate-hashes", "--no-header", "--no-annotate", "--only-binary", ":all:", *built, *more]
        if subprocess.run([*uv, *what, "-o", str(out)], cwd=ROOT).returncode:
            sys.exit(f"uv could not resolve {' '.join(what)}: see above")
        pins = _pins_in(text := out.read_text(encoding="utf-8"))
        if twice := [name for name in pins if len(re.findall(f"^{name}==", text, re.MULTILINE)) > 1]:
            sys.exit(f"{', '.join(twice)}: no version fits all machines; pin one that does in pyproject.toml")
        return pins


def _pins_in(text: str) -> Pins:
    for long, short in _SHORTER.items():
        text = text.replace(long, short)
    blocks = re.findall(r"^[\w.-]+==[^\n]*\n(?:[ ][^\n]*\n)*", text, re.MULTILINE)
    return {block.partition("==")[0]: block for block in blocks}


def _compiled(requirements: list[str], known: Pins, *more: str) -> Pins:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "wanted.in")
        path.write_text("\n".join(requirements), encoding="utf-8")
        return resolve([str(path)], known, *more)


def _on_linux(pin: str) -> str:
    """A pin that counts on Linux alone, unless it says itself where it does."""
    first, end, hashes = pin.partition(" \\\n")
    return pin if ";" in first else f"{first} ; {LINUX}{end}{hashes}"


def _write_cpu(torch: str) -> None:
    """torch's build for CPUs, of the same version; without torch's index, as it was the last time."""
    version = torch.partition("==")[2].split()[0]
    _, end, hashes = torch.partition(" \\\n")
    mac = f"torch=={version} ; {MAC}{end}{hashes}"
    if f"torch=={version}+cpu" in (FOLDER / "cpu.txt").read_text(encoding="utf-8"):
        return
    pins = _compiled([f"torch=={version}+cpu ; {LINUX}"], {}, "--index", TORCH_INDEX)
    (FOLDER / "cpu.txt").write_text(f"{_head('cpu')}{pins['torch']}{mac}", encoding="utf-8")


def _write(lock: str, pins: Pins, wanted: Callable[[str], bool] = lambda name: True) -> None:
    text = _head(lock) + "".join(pin for name, pin in sorted(pins.items()) if wanted(name))
    (FOLDER / f"{lock}.txt").write_text(text, encoding="utf-8")


def _head(lock: str) -> str:
    return f"# {FILES[lock]}. Written by `make lock`: CONTRIBUTING.md\n"


if __name__ == "__main__":
    main()
