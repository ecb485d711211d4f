"""Makes the environment: `$VENV` (.venv) with the packages of constraints/, each checked by its sha256.

pip gets uv, and uv installs the rest, from where pip's own settings say. `.ready` in the environment says
what was installed. `.installing` is locked as long as an installer or its uv is at work, and says whether
one was stopped: then all is installed again, from uv's cache as far as it was downloaded.

torch has two builds for Linux: PyPI's, with CUDA, and one for CPUs, a tenth of its size, which only torch's
own index has. The CPU build is taken where no NVIDIA driver is. Where that index cannot be reached, PyPI's is
taken: it runs on a CPU too.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("base", "cpu", "cuda", "build", "uv")
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
LEAST_DRIVER = 580
"""The first driver for CUDA 13, with which PyPI's torch 2.13 is built (NVIDIA's CUDA 13.0 release notes)."""
SIZES = {"cpu": "0.5 GB to download and 2.0 GB of disk", "cuda": "3.0 GB to download and 6.2 GB of disk"}
"""With all else and bytecode; Linux x86_64, CPython 3.11, 2026-11-22."""
_MISLEADING = (
    *("UV_TORCH_BACKEND", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE", "PIP_CONSTRAINT", "PIP_TARGET"),
    *("PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV", "VIRTUAL_ENV", "CONDA_PREFIX"),
)
"""Variables that would make uv or pip install something else, or elsewhere."""


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


def main() -> int:
    """The exit code: 0, 64 usage, 75 try again, 78 environment."""
    venv = Path(os.environ.get("VENV") or ".venv").absolute()
    os.chdir(ROOT)
    try:
        check_machine()
        if not (venv / "pyvenv.cfg").exists() and venv.exists() and any(venv.iterdir()):
            raise Refused(f"{venv} is there and is no virtual environment: name another: make VENV=...")
        venv.mkdir(parents=True, exist_ok=True)
        _install(venv, os.environ.get("TORCH", ""), os.environ.get("TORCH_INDEX") or TORCH_INDEX)
    except Refused as error:
        print(error, file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("Stopped. Run the same command again to go on; what was downloaded is kept.", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"{error.filename or venv}: {error.strerror or error}", file=sys.stderr)
        return 78
    return 0


def check_machine() -> None:
    """Refuse a machine for which there are no wheels, before anything is downloaded.

    Raises:
        Refused: says what is needed and what this is.
    """
    system, machine = platform.system(), platform.machine()
    if (system, machine) not in (("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64")):
        raise Refused(
            "Yanmo runs on Linux (x86_64, aarch64; on Windows in WSL) and on a Mac with Apple's processor; "
            f"this is {system} {machine}, for which torch or numba has no wheels"
        )
    name, version = platform.libc_ver()
    if system == "Linux" and (name != "glibc" or _numbers(version) < (2, 28)):
        raise Refused(f"torch's wheels need glibc 2.28 or later; this is {name or 'another libc'} {version}")
    if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        raise Refused(
            f"{sys.executable} cannot make a virtual environment: it has no venv or ensurepip. Debian and "
            "Ubuntu have them in a package of their own: apt-get install python3-venv"
        )


def choose_build(wished: str, index: str, *, is_there: bool = False) -> Build:
    """The build of torch for this machine.

    Args:
        wished: what the person asked for: "cpu", "cuda" or "" for what fits.
        index: address of torch's index for CPUs, or of a mirror of it, or a folder with its wheels.
        is_there: whether the environment has the build for CPUs, as locked, already.

    Raises:
        Refused: the build that was asked for cannot be had.
    """
    if wished not in ("", "cpu", "cuda"):
        raise Refused(f"TORCH={wished}: expected cpu, cuda, or nothing for the one that fits", 64)
    if sys.platform == "darwin":
        return Build("cpu", "torch for the Mac")
    if wished == "cuda":
        return Build("cuda", "torch with CUDA, as asked for")
    driver = driver_version()
    if not wished and _numbers(driver) >= (LEAST_DRIVER,):
        return Build("cuda", f"torch with CUDA, for the NVIDIA driver {driver}")
    why = "as asked for" if wished else "as no NVIDIA driver is here"
    if driver and not wished:
        why = f"as CUDA 13 needs an NVIDIA driver {LEAST_DRIVER} or later, not {driver} (or TORCH=cuda)"
    problem = "" if is_there else _unreachable(index)
    if not problem:
        return Build("cpu", f"torch for the CPU, {why}", index)
    if wished:
        raise Refused(f"TORCH=cpu: {index} cannot be reached ({problem}). TORCH_INDEX names a mirror", 75)
    return Build(
        "cuda",
        f"torch with CUDA, which runs on a CPU too: {index} has the build without, and cannot be reached "
        f"({problem}); TORCH_INDEX names a mirror of it",
    )


def driver_version(root: Path = Path("/")) -> str:
    """The version of the loaded NVIDIA driver; "" without one."""
    try:
        said = (root / "proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        command = shutil.which("nvidia-smi") or shutil.which("/usr/lib/wsl/lib/nvidia-smi")
        ask = ["--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run([command, *ask], capture_output=True, text=True) if command else None
        said = f" {done.stdout}" if done and done.returncode == 0 else ""
    found = re.search(r"\s(\d+\.[\d.]+)", said)
    return found[1] if found else ""


def settings_of_pip(listing: str) -> dict[str, str]:
    """Variables by which uv looks where pip does, from what `pip config list` prints: uv reads none of it."""
    names = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS"}
    names |= {"trusted-host": "UV_INSECURE_HOST", "proxy": "HTTPS_PROXY"}
    found = {}
    for line in sorted(listing.splitlines(), key=lambda line: line.startswith(":env:")):  # which count most
        setting = re.match(r"(?::env:|global|site|user|install)\.([\w-]+)=(.*)$", line)
        if setting and setting[1] in names:
            found[names[setting[1]]] = " ".join(str(ast.literal_eval(setting[2])).split())
    return found | ({"UV_INDEX_STRATEGY": "unsafe-best-match"} if "UV_INDEX" in found else {})


def _install(venv: Path, wished: str, index: str) -> None:
    """Bring an environment to what constraints/ says; does nothing where it is that already."""
    began, ready, mark = time.monotonic(), venv / ".ready", venv / ".installing"
    with mark.open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"Another make installs into {venv}: waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        was_stopped = bool(lock.read())
        words = ready.read_text(encoding="utf-8").split() if ready.exists() else []
        if not was_stopped and words and wished in ("", words[0]) and words[1:] == [_digest()]:
            ready.touch()
            return
        if was_stopped:
            _say(f"The last install into {venv} was stopped: beginning again with what was downloaded.")
        lock.write("begun")
        lock.flush()
        python = venv / "bin" / "python"
        if not _runs([str(python), "-c", "import sys, pip; assert (3, 11) <= sys.version_info < (3, 14)"]):
            for link in venv.glob("bin/python*"):  # of a Python that was removed
                link.unlink()
            _call([sys.executable, "-m", "venv", str(venv)])
        listing = subprocess.run(
            [python, "-m", "pip", "config", "list"], capture_output=True, text=True
        ).stdout
        around = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
        around = settings_of_pip(listing) | around
        around |= {"UV_SYSTEM_CERTS": "1", "UV_COMPILE_BYTECODE": "1", "PIP_USER": "0"}
        (cpu,) = re.findall(
            r"^torch==(\S+\+cpu)", Path(_lock("cpu")).read_text(encoding="utf-8"), re.MULTILINE
        )
        has_cpu = any(venv.glob(f"lib/python*/site-packages/torch-{cpu}.dist-info"))
        build = choose_build(wished, index, is_there=has_cpu and not was_stopped)
        _say(f"Installing into {venv}: {build.why}.")
        _say(f"At most {SIZES[build.name]}. It may be stopped at any time: the next make goes on.")
        ready.unlink(missing_ok=True)
        _install_build(python, build, around, lock.fileno(), again=was_stopped)
        ready.write_text(f"{build.name} {_digest()}\n", encoding="utf-8")
        lock.truncate(0)
    _say(f"Installed into {venv} in {time.monotonic() - began:.0f} s.")


def _install_build(python: Path, build: Build, around: Mapping[str, str], lock: int, *, again: bool) -> None:
    """Install the packages with a build of torch, then the project itself.

    Args:
        lock: an open file that is locked until also the last program here has ended.
        again: installs also what seems to be there: a program may have been stopped halfway.
    """

    def uv(command: str, *words: str) -> None:
        program = [str(python.with_name("uv")), "pip", command, "--python", str(python), *words]
        _call(program, around, lock)

    checked = ["--require-hashes", "--no-deps", "--build-constraints", _lock("build")]
    checked += ["--reinstall"] * again
    pip = [str(python), "-m", "pip", "install", "-q", "--retries", "2", "--only-binary", ":all:"]
    _call([*pip, "--require-hashes", "-r", _lock("uv")], around, lock)
    others = {"cpu": _names("cuda"), "cuda": ["torch"]}[build.name]  # 2.13.0+cpu would pass for 2.13.0
    if there := [name for name in others if _other_build(python.parents[1], name, build.name)]:
        uv("uninstall", *there)
    uv("install", *checked, "-r", _lock("base"), *([] if build.index else ["-r", _lock(build.name)]))
    if build.index:  # an index, a page of links as mirrors have it, or a folder
        place = ["--default-index", build.index] if "://" in build.index else ["--no-index"]
        uv("install", *checked, "--find-links", build.index, *place, "-r", _lock(build.name))
    uv("install", "--no-deps", "--build-constraints", _lock("build"), "-e", ".")


def _other_build(venv: Path, name: str, build: str) -> bool:
    """Whether a package is there that the build has not, or torch of the other build."""
    found = [
        path.name for path in venv.glob(f"lib/python*/site-packages/{name.replace('-', '_')}-*.dist-info")
    ]
    return bool(found) and (name != "torch" or ("+cpu" in found[0]) != (build == "cpu"))


def _call(command: list[str], around: Mapping[str, str] | None = None, *kept: int) -> None:
    """Run a program, which says itself what it does.

    Raises:
        Refused: it failed.
    """
    if subprocess.run(command, env=around, stdin=subprocess.DEVNULL, pass_fds=kept).returncode:
        raise Refused(
            "The install failed: see above. Mend that (the network, an index, a full disk), and run the same "
            "command again; what was downloaded is kept",
            75,
        )


def _runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def _unreachable(address: str) -> str:
    """Why a page or folder cannot be read; "" if it can."""
    try:
        if "://" not in address:
            return "" if Path(address).is_dir() else "no such folder"
        with urllib.request.urlopen(address.rstrip("/") + "/", timeout=10):
            return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))


def _names(lock: str) -> list[str]:
    """The packages of a lock file."""
    return re.findall(r"^([\w.-]+)==", Path(_lock(lock)).read_text(encoding="utf-8"), re.MULTILINE)


def _lock(name: str) -> str:
    return f"constraints/{name}.txt"


def _digest() -> str:
    """Of all that decides what is installed."""
    paths = [ROOT / "pyproject.toml", *(ROOT / _lock(name) for name in LOCKS)]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
