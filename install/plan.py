"""What to install on this machine, and whether it can be: the build of torch, sizes, free disk.

torch has two builds for Linux: PyPI's, with CUDA, and one for CPUs, a tenth of its size, which only torch's
own index has. The CPU build is taken where no NVIDIA driver is. Where that index cannot be reached, PyPI's is
taken: it runs on a CPU too.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
LEAST_DRIVER = 580
"""The first driver for CUDA 13, with which PyPI's torch 2.13 is built (NVIDIA's CUDA 13.0 release notes)."""


class Refused(Exception):
    """It cannot be installed; says what to do. `code` is the exit code: 75 try again, 78 environment."""

    def __init__(self, message: str, code: int = 78) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Build:
    """A build of torch: its lock file, why it is taken, and the index that has it, if another than PyPI."""

    name: str
    why: str
    index: str = ""


@dataclass(frozen=True)
class Size:
    """What a build costs, bytes."""

    download: float
    disk: float


SIZES = {"cpu": Size(0.5e9, 2.0e9), "cuda": Size(3.0e9, 6.2e9)}
"""With uv, all else and bytecode; Linux x86_64, CPython 3.11, 2026-11-22. Downloads: the sizes of files on
PyPI, and 192 MB for torch's wheel for CPUs. Disk: 5851 MiB with CUDA (`du -sm .venv`); for CPUs that less the
libraries of CUDA and NVIDIA, 3979 MiB."""


def check_machine() -> None:
    """Refuse a machine for which there are no wheels, before anything is downloaded.

    Raises:
        Refused: says what is needed and what this is.
    """
    system, machine = platform.system(), platform.machine()
    if (system, machine) not in (("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64")):
        raise Refused(
            f"Yanmo runs on Linux (x86_64, aarch64) and on a Mac with Apple's processor; this is {system} "
            f"{machine}, for which torch or numba has no wheels"
            + (". On Windows use WSL" if system == "Windows" else "")
        )
    if system == "Linux":
        name, version = platform.libc_ver()
        if name != "glibc" or _numbers(version) < (2, 28):
            raise Refused(
                f"torch's wheels need glibc 2.28 or later; this system has {name or 'another libc'} {version}"
            )
    elif _numbers(platform.mac_ver()[0]) < (14,):
        raise Refused(f"torch's wheels need macOS 14 or later; this is {platform.mac_ver()[0]}")
    if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise Refused(f"Yanmo needs CPython with its lock; {sys.executable} is {sys.version.splitlines()[0]}")
    if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        raise Refused(
            f"{sys.executable} cannot make a virtual environment: it has no venv or ensurepip. "
            "Debian and Ubuntu have them in a package of their own: apt-get install python3-venv"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def driver_version(root: Path = Path("/")) -> str:
    """The version of the loaded NVIDIA driver; "" without one."""
    for name, pattern in (
        ("sys/module/nvidia/version", r"([\d.]+)"),
        ("proc/driver/nvidia/version", r"\s(\d+\.[\d.]+)"),
    ):
        try:
            found = re.search(pattern, (root / name).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if found:
            return found[1]
    command = shutil.which("nvidia-smi") or shutil.which("/usr/lib/wsl/lib/nvidia-smi")
    if not command:
        return ""
    ask = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.match(r"\d+\.[\d.]+", said.stdout)
    return found[0] if said.returncode == 0 and found else ""


def choose_build(wished: str, index: str, local: Iterable[Path] = (), is_there: bool = False) -> Build:
    """The build of torch for this machine.

    Args:
        wished: what the person asked for: "cpu", "cuda" or "" for what fits.
        index: address of torch's index for CPUs, or of a mirror of it.
        local: folders in which pip looks for wheels.
        is_there: whether the environment has the build for CPUs, as locked, already.

    Raises:
        Refused: the build that was asked for cannot be had.
    """
    if wished not in ("", "cpu", "cuda"):
        raise Refused(f"TORCH={wished}: expected cpu, cuda, or nothing for the one that fits", 64)
    if sys.platform == "darwin":
        if wished == "cuda":
            raise Refused("TORCH=cuda: torch has no CUDA on a Mac; leave TORCH out")
        return Build("cpu", "torch for the Mac")
    if wished == "cuda":
        return Build("cuda", "torch with CUDA, as asked for")
    driver = driver_version()
    if wished != "cpu" and driver and _numbers(driver)[0] >= LEAST_DRIVER:
        return Build("cuda", f"torch with CUDA, for the NVIDIA driver {driver}")
    why = "as asked for" if wished == "cpu" else "as no NVIDIA driver is here"
    if wished != "cpu" and driver:
        why = (
            f"as CUDA 13 needs an NVIDIA driver {LEAST_DRIVER} or later and {driver} is here (or TORCH=cuda)"
        )
    for folder in local:
        if any(folder.glob("torch-*+cpu-*.whl")):
            return Build("cpu", f"torch for the CPU, {why}, from {folder}", str(folder))
    problem = "" if is_there else _unreachable(index)
    if not problem:
        return Build("cpu", f"torch for the CPU, {why}", index)
    if wished == "cpu":
        raise Refused(
            f"TORCH=cpu: {index} cannot be reached ({problem}). TORCH_INDEX names a mirror of it", 75
        )
    return Build(
        "cuda",
        f"torch with CUDA, which runs on a CPU too: {index} has the build without, and cannot be reached "
        f"({problem}); TORCH_INDEX names a mirror of it",
    )


def _unreachable(address: str) -> str:
    """Why a page cannot be read; "" if it can."""
    try:
        with urllib.request.urlopen(address.rstrip("/") + "/", timeout=10):
            return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))


def check_disk(build: str, venv: Path, environment: Mapping[str, str]) -> None:
    """Refuse to begin what cannot fit.

    Raises:
        Refused: says how much is needed and how much is free.
    """
    cache = uv_cache(environment)
    places = {_existing(venv)}
    if _existing(cache).stat().st_dev != _existing(venv).stat().st_dev:
        places.add(_existing(cache))
    for place in places:
        need, free = SIZES[build].disk, shutil.disk_usage(place).free
        # What was downloaded before lies there already.
        if free < need and free + _bytes_below(cache) < need:
            raise Refused(
                f"{place}: {free / 1e9:.1f} GB are free, and this install needs {need / 1e9:.1f} GB. Nothing "
                "was downloaded; free some space and run the same command again", 75
            )  # fmt: skip


def uv_cache(environment: Mapping[str, str]) -> Path:
    """Where uv keeps what it downloaded (`uv cache dir`), also where uv is not installed yet."""
    own = environment.get("UV_CACHE_DIR")
    return Path(own) if own else Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache", "uv")


def _existing(path: Path) -> Path:
    path = path.absolute()
    return path if path.exists() else _existing(path.parent)


def _bytes_below(folder: Path) -> int:
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                stat = os.lstat(os.path.join(root, name))
            except OSError:
                continue
            found[stat.st_ino] = stat.st_size
    return sum(found.values())
