"""A small real store, made once by the stages themselves, and a copy of it for each case."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from torture.place import FilePlace
from torture.stages import CHANNEL, SOURCES, STAGES, run_stage

ALL = tuple(STAGES)
DATA = ALL[:3]
"""Stages that need no model: 4 s of CPU instead of 11."""


@dataclass
class Ground:
    """A folder with `store/` and `in/` (what a person has), made again where a case changed it."""

    folder: Path
    stages: tuple[str, ...] = ALL
    _clean: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def template(self) -> Path:
        """The store as the stages left it."""
        return self.folder / "template"

    @property
    def case(self) -> Path:
        """Everything that a case may touch."""
        return self.folder / "case"

    @property
    def store(self) -> Path:
        """The copy of the template that a case works on."""
        return self.case / "store"

    @property
    def inputs(self) -> Path:
        """Files of a person."""
        return self.case / "in"

    @property
    def cwd(self) -> Path:
        """The folder in which commands run."""
        return self.case / "cwd"

    def make_template(self) -> None:
        """Run the stages, unless an earlier call or process did."""
        done = self.folder / f"made-{len(self.stages)}"
        if done.exists():
            return
        shutil.rmtree(self.template, ignore_errors=True)
        place = FilePlace(self.template)
        for stage in self.stages:
            run_stage(stage, place, self.folder)
        shutil.rmtree(place.scratch, ignore_errors=True)
        for log in self.folder.glob("*.log"):
            log.unlink()
        done.touch()

    def renew(self) -> None:
        """Make the case's folder as if nothing had happened in it."""
        if self._clean:
            return
        self.make_template()
        _remove(self.case)
        shutil.copytree(self.template, self.store, symlinks=True)
        self.inputs.mkdir()
        self.cwd.mkdir()
        shutil.copyfile(SOURCES, self.inputs / "documents.jsonl")
        if "train" in self.stages:
            shutil.copytree(self.store / self.name_of("train"), self.inputs / "model")
        make_odd(self.inputs)
        self._clean = True

    def touch(self) -> None:
        """The case changed something: the next one begins with a new copy."""
        self._clean = False

    def fill(self, text: str) -> str:
        """`text` with this ground's places for @store, @in and @case."""
        for name, path in (("@store", self.store), ("@in", self.inputs), ("@case", self.case)):
            text = text.replace(name, str(path))
        return text

    def name_of(self, pointer: str) -> str:
        """The name in the store of the folder with the files of the output that a pointer names."""
        found = json.loads((self.template / f"pointers/{CHANNEL}/{pointer}.json").read_bytes())
        manifest = json.loads((self.template / found["manifest_uri"]).read_bytes())
        return f"{os.path.dirname(found['manifest_uri'])}/{manifest['attempt']}"


ODD = (
    "missing",
    "folder",
    "fifo",
    "broken",
    "loop",
    "binary",
    "empty",
    "wide",
    "closed/file",
    "binary/below",
)
"""Names below in/ of what lies, or does not, where a file is expected."""


def make_odd(folder: Path) -> None:
    """What else may lie where a file is expected."""
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "broken").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    (folder / "binary").write_bytes(bytes(range(256)) * 64)
    (folder / "empty").touch()
    (folder / "wide").write_text("长" * 1_000_000, encoding="utf-8")
    (folder / "closed").mkdir()
    (folder / "closed" / "file").write_text("x")
    (folder / "closed").chmod(0)


def look(root: Path) -> dict[str, str]:
    """Everything below a folder: the sha256 of files, the kind of everything else; nothing is waited for."""
    found: dict[str, str] = {}
    for folder, folders, files in os.walk(root):
        for name in (*files, *(f for f in folders if os.path.islink(os.path.join(folder, f)))):
            path = Path(folder, name)
            with contextlib.suppress(FileNotFoundError):
                mode = path.lstat().st_mode
                plain = stat.S_ISREG(mode)
                found[path.relative_to(root).as_posix()] = (
                    hashlib.sha256(path.read_bytes()).hexdigest() if plain else f"kind {stat.S_IFMT(mode):o}"
                )
    return found


def _remove(folder: Path) -> None:
    """The folder, and what is mounted in it."""
    mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace") if folder.exists() else ""
    for line in reversed(mounts.splitlines()):
        if line.split()[1].startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", line.split()[1]], check=True)
    shutil.rmtree(folder, ignore_errors=True)
    assert not folder.exists(), folder
