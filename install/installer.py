"""Makes the environment: `$VENV` (.venv) with the packages of constraints/, each checked by its sha256.

uv installs, in a quarter of pip's time; where it has no wheel, pip does the same. `.ready` in the environment
says what was installed, `.installing` that it is not whole: a package may be there by half. Then all is
installed again, from uv's cache as far as it was downloaded.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from locks import FOLDER, read_lock
from plan import SIZES, TORCH_INDEX, Build, Refused, check_disk, check_machine, choose_build
from shown import run_shown

ROOT = FOLDER.parent
LOCKS = ("base", "cpu", "cuda", "build", "uv")
_NETWORK = re.compile(
    r"Connection|timed? ?out|Name or service not known|name resolution|dns error|Max retries|Failed to fetch|"
    r"error sending request|Network is unreachable|Proxy|certificate",
    re.IGNORECASE,
)
NEW, UPDATE = "new", "update"
_FULL = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)


@dataclass
class Pip:
    """Where pip looks for packages: uv reads none of it itself."""

    index_url: str = ""
    extra_index_url: list[str] = field(default_factory=list)
    find_links: list[str] = field(default_factory=list)
    trusted_host: list[str] = field(default_factory=list)
    proxy: str = ""

    @classmethod
    def read(cls, listing: str) -> Pip:
        """From what `pip config list` prints; the environment's settings come last, as they count most."""
        pip = cls()
        lines = sorted(listing.splitlines(), key=lambda line: line.startswith(":env:"))
        for line in lines:
            found = re.match(r"(?::env:|global|site|user|install)\.([\w-]+)=(.*)$", line)
            if found and hasattr(pip, name := found[1].replace("-", "_")):
                value = str(ast.literal_eval(found[2]))
                setattr(pip, name, value if isinstance(getattr(pip, name), str) else value.split())
        return pip

    def words(self) -> list[str]:
        """uv's options that say the same. Any index may give a file, as all are checked by their hashes."""
        words = ["--default-index", self.index_url] if self.index_url else []
        for option in ("extra_index_url", "find_links"):
            words += [
                word for value in getattr(self, option) for word in ("--" + option.replace("_", "-"), value)
            ]
        words += [word for value in self.trusted_host for word in ("--allow-insecure-host", value)]
        return [*words, "--index-strategy", "unsafe-best-match"] if self.extra_index_url else words


def main() -> int:
    """The exit code: 0, 64 usage, 75 try again, 78 environment."""
    venv = Path(os.environ.get("VENV") or ".venv")
    try:
        install(venv, os.environ.get("TORCH", ""), os.environ.get("TORCH_INDEX") or TORCH_INDEX)
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


def install(venv: Path, wished: str, index: str) -> None:
    """Bring an environment to what constraints/ says; does nothing where it is that already.

    Raises:
        Refused: it cannot be; says what to do.
    """
    os.chdir(ROOT)
    check_machine()
    _check_place(venv)
    venv.mkdir(parents=True, exist_ok=True)
    with _alone(venv) as mark:
        if (venv / ".ready").exists() and _is_current(venv, wished):
            (venv / ".ready").touch()
        else:
            _install(venv, wished, index, mark)


def _install(venv: Path, wished: str, index: str, mark: Mark) -> None:
    began = time.monotonic()
    python = venv / "bin" / "python"
    if mark.stopped:
        _say(f"The last install into {venv} was stopped: beginning again with what was downloaded.")
    was_there = mark.stopped != NEW and _runs(python)
    again = was_there and not (venv / ".ready").exists()  # a program may have been stopped halfway
    if not was_there:
        mark.write(NEW)
        _clear(venv)
        _call([sys.executable, "-m", "venv", str(venv)], "Making the virtual environment")
    pip = Pip.read(_output([str(python), "-m", "pip", "config", "list"]))
    if pip.proxy:
        os.environ.setdefault("HTTPS_PROXY", pip.proxy)
    cpu = next(pin.version for pin in read_lock("cpu") if pin.version.endswith("+cpu"))
    has_cpu = was_there and not again and _has(venv, "torch", cpu)
    build = choose_build(wished, index, [Path(place) for place in pip.find_links], has_cpu)
    if was_there:
        _say(f"Bringing {venv} up to date: {build.why}.")
        mark.write(UPDATE)
    else:
        check_disk(build.name, venv, os.environ)
        size = SIZES[build.name]
        _say(f"Installing into {venv}: {build.why}.")
        _say(
            f"About {size.download / 1e9:.1f} GB to download, less what uv's cache has, and "
            f"{size.disk / 1e9:.1f} GB of disk. It may be stopped at any time: the next make goes on."
        )
    (venv / ".ready").unlink(missing_ok=True)
    Installer(python, pip, again).install(build)
    new = venv / ".ready.new"
    new.write_text(f"{build.name} {_digest()}\n", encoding="utf-8")
    new.replace(venv / ".ready")  # a copy of the environment by hard links keeps its own
    _say(f"Installed into {venv} in {time.monotonic() - began:.0f} s.")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Installer:
    """uv, or pip where uv has no wheel, in an environment."""

    def __init__(self, python: Path, pip: Pip, again: bool) -> None:
        """`again` installs also what seems to be there: another program may have been stopped halfway."""
        self._python, self._pip, self._again = str(python), pip, again
        self._venv = python.parents[1]
        self._environment = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
        self._environment |= {"UV_SYSTEM_CERTS": "1", "UV_COMPILE_BYTECODE": "1", "PIP_USER": "0"}
        if pip.proxy:
            self._environment = {"HTTPS_PROXY": pip.proxy, "HTTP_PROXY": pip.proxy} | self._environment
        self._uv = [str(python.with_name("uv")), "pip"] if self._get_uv() else []

    def _get_uv(self) -> bool:
        command = ["install", "-q", "--retries", "2", "--require-hashes", "--only-binary", ":all:"]
        done = subprocess.run(
            [self._python, "-m", "pip", *command, "-r", _lock("uv")],
            env=self._environment,
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            return True
        _explain(done.stdout + done.stderr)
        _say("uv has no wheel for this machine; pip installs, which takes longer.")
        return False

    def install(self, build: Build) -> None:
        """Install the packages with a build of torch, then the project itself."""
        torch = ["-r", _lock(build.name)]
        if build.name == "cuda" and _has(self._venv, "torch", "*+cpu"):
            self._leave_out(["torch"])  # 2.13.0+cpu would pass for 2.13.0
        if not self._uv:
            self._run(["--require-hashes", "-r", _lock("build")])
        self._run(["--require-hashes", "-r", _lock("base"), *([] if build.index else torch)])
        if build.index:
            self._run(["--require-hashes", *torch], build.index)
        if build.name == "cpu":
            self._leave_out([pin.name for pin in read_lock("cuda") if pin.name != "torch"])
        self._run(["-e", "."])
        check = [*self._uv, "check"] if self._uv else [self._python, "-m", "pip", "check"]
        done = subprocess.run([*check, *self._where()], env=self._environment, capture_output=True, text=True)
        if done.returncode:
            _say(f"Some packages do not fit each other:\n{done.stdout}{done.stderr}")

    def _run(self, what: Sequence[str], index: str = "") -> None:
        """Install what is named and nothing else: constraints/ names all that is needed.

        Args:
            index: address or folder to take it from, instead of from where pip and uv look.
        """
        if self._uv:
            command = [*self._uv, "install", *self._where(), "--build-constraints", _lock("build")]
            command += ["--reinstall"] * self._again
        else:
            command = [self._python, "-m", "pip", "install", "--no-build-isolation"]
            command += ["--force-reinstall"] * self._again
        if index:  # an index, a page of links as mirrors have it, or a folder
            places = ["--find-links", index, *(["--index-url", index] if "://" in index else ["--no-index"])]
        else:
            places = self._pip.words() if self._uv else []
        code, said = run_shown([*command, *places, "--no-deps", *what], self._environment)
        if code:
            _explain(said)
            raise Refused("The install failed: see above. Run the same command again once that is mended")

    def _leave_out(self, names: Sequence[str]) -> None:
        there = [name for name in names if _has(self._venv, name, "*")]
        if there:
            remove = (
                [*self._uv, "uninstall", *self._where()]
                if self._uv
                else [self._python, "-m", "pip", "uninstall", "-y"]
            )
            subprocess.run([*remove, *there], env=self._environment, capture_output=True, check=False)

    def _where(self) -> list[str]:
        return ["--python", self._python] if self._uv else []


_MISLEADING = (
    "UV_TORCH_BACKEND", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE", "PIP_CONSTRAINT", "PIP_TARGET",
    "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV", "VIRTUAL_ENV", "CONDA_PREFIX",
)  # fmt: skip
"""Variables that would make uv or pip install something else, or elsewhere."""


def _explain(said: str) -> None:
    """Say what to do about a failure that is known.

    Raises:
        Refused: the network or the disk is at fault.
    """
    if _FULL.search(said):
        raise Refused(
            "The disk is full: free some space and run the same command again; what was downloaded is kept",
            75,
        )
    if _NETWORK.search(said):
        raise Refused(
            "The package index cannot be reached. Check the network (pip's index-url, proxy and certificate "
            "are used too) and run the same command again; what was downloaded is kept", 75
        )  # fmt: skip


def _lock(name: str) -> str:
    return str((FOLDER / f"{name}.txt").relative_to(ROOT))


def _digest() -> str:
    """Of all that decides what is installed."""
    paths = [ROOT / "pyproject.toml", *(FOLDER / f"{name}.txt" for name in LOCKS)]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


def _is_current(venv: Path, wished: str) -> bool:
    words = (venv / ".ready").read_text(encoding="utf-8").split()
    return len(words) == 2 and wished in ("", words[0]) and words[1] == _digest()


def _check_place(venv: Path) -> None:
    """Refuse a folder that is something else than an environment, or one whose Python is gone."""
    if not venv.exists() or not any(venv.iterdir()):
        return
    ours = any((venv / name).exists() for name in (".ready", ".installing"))
    if not ours and not (venv / "pyvenv.cfg").exists():
        raise Refused(
            f"{venv} is there and is no virtual environment: move it away, or name another: make VENV=..."
        )
    if not ours and not _runs(venv / "bin" / "python"):
        raise Refused(
            f"{venv} is a virtual environment whose Python cannot be used: remove it (rm -r {venv})"
        )


def _has(venv: Path, name: str, version: str) -> bool:
    """Whether a package is installed; its version may be a pattern."""
    return any(venv.glob(f"lib/python*/site-packages/{name.replace('-', '_')}-{version}.dist-info"))


def _runs(python: Path) -> bool:
    """Whether an environment's Python starts, is one that can, and has pip."""
    code = "import sys, pip; print(*sys.version_info[:2], sep='.')"
    try:
        done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() in ("3.11", "3.12", "3.13")


def _clear(venv: Path) -> None:
    for path in venv.iterdir():
        if path.name == ".installing":
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


class Mark:
    """What `.installing` says of an install that was stopped: it was NEW, or an UPDATE."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.stopped = self.read()

    def read(self) -> str:
        """What is begun and not finished; "" if nothing."""
        self._file.seek(0)
        return self._file.read()

    def write(self, what: str) -> None:
        """Write what is begun."""
        self._file.truncate(0)
        self._file.write(what)
        self._file.flush()


@contextmanager
def _alone(venv: Path) -> Iterator[Mark]:
    """Keeps a second install out."""
    path = venv / ".installing"
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"Another make installs into {venv}: waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        mark = Mark(file)
        try:
            yield mark
            mark.write("")
        finally:
            if not mark.read():
                path.unlink(missing_ok=True)


def _call(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        _explain(done.stdout + done.stderr)
        raise Refused(f"{what} failed:\n{(done.stdout + done.stderr).strip()}")


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout
