"""A small real store, made once by the stages themselves, and a copy of it for each situation."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from chaos.place import FilePlace, S3Place
from chaos.start import CHANNEL, SOURCES, STAGES, run_stages

ALL = tuple(STAGES)
DATA = ALL[:3]
"""Stages that need no model: 4 s of CPU instead of 11."""


@dataclass
class Store:
    """A folder with `store/` and `in/` (what a person has), made again for each situation.

    Where `place` is given, commands see the bucket, which is made to hold what the folder holds: situations
    damage files. What a folder alone can have (links, pipes, modes, mounts) is none of a bucket.
    """

    folder: Path
    stages: tuple[str, ...] = ALL
    place: S3Place | None = None

    @property
    def template(self) -> Path:
        """The store as the stages left it; made when it is first asked for."""
        found, done = self.folder / "template", self.folder / f"made-{len(self.stages)}"
        if not done.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            place = FilePlace(found)
            place.remove()
            run_stages(self.stages, place, self.folder)
            shutil.rmtree(place.scratch, ignore_errors=True)
            for log in self.folder.glob("*.log"):
                log.unlink()
            done.touch()
        return found

    @property
    def case(self) -> Path:
        """Everything that a situation may touch."""
        return self.folder / "case"

    @property
    def store(self) -> Path:
        """The copy of the template that commands work on."""
        return self.case / "store"

    @property
    def inputs(self) -> Path:
        """Files of a person."""
        return self.case / "in"

    @property
    def cwd(self) -> Path:
        """The folder in which commands run."""
        return self.case / "cwd"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that a command needs."""
        own = {"YANMO_SCRATCH": str(self.case / "scratch"), "HOME": str(self.case)}
        return own | (self.place.server.environment() if self.place else {})

    def clear(self) -> None:
        """Remove the folder of a situation, with what is mounted in it."""
        for mount in _mounts(self.case):
            subprocess.run(["umount", "-l", mount], check=True)
        shutil.rmtree(self.case, ignore_errors=True)
        assert not self.case.exists(), self.case

    def renew(self) -> None:
        """Make the folder of a situation, as if nothing had happened in it."""
        template = self.template
        self.clear()
        shutil.copytree(template, self.store, symlinks=True)
        self.inputs.mkdir()
        self.cwd.mkdir()
        shutil.copy2(SOURCES, self.inputs / "documents.jsonl")
        if "train" in self.stages:
            shutil.copytree(template / self.name_of("train"), self.inputs / "model")
        make_odd(self.inputs)

    def publish(self) -> None:
        """Make the bucket hold what the folder holds, by the MD5 that it says of each object."""
        if self.place is None:
            return
        wanted = {
            path.relative_to(self.store).as_posix(): path for path in self.store.rglob("*") if path.is_file()
        }
        there = self.look()
        for name, path in wanted.items():
            data = path.read_bytes()
            if there.get(name) != hashlib.md5(data, usedforsecurity=False).hexdigest():
                self.place.write(name, data)
        self.place.delete(sorted(there.keys() - wanted.keys()))

    def look(self) -> dict[str, str]:
        """Every file of the store with what tells its content."""
        if self.place is None:
            return look(self.store)
        prefix = f"{self.place.prefix}/"
        listed = self.place.client.list_objects(self.place.bucket, prefix=prefix, recursive=True)
        return {item.object_name.removeprefix(prefix): item.etag.strip('"') for item in listed}

    def digests(self) -> dict[str, str]:
        """Pointer of the channel -> the content digest that it holds."""
        folder, found = f"pointers/{CHANNEL}/", {}
        for name in self.look():
            if name.startswith(folder) and name.count("/") == 2:
                data = self.place.read(name) if self.place else (self.store / name).read_bytes()
                value = json.loads(data)
                known = isinstance(value, dict) and "content_digest" in value
                found[Path(name).stem] = value["content_digest"] if known else "?"
        return found

    def fill(self, text: str) -> str:
        """`text` with this store's places for @store, @in and @case."""
        store = self.place.uri if self.place else str(self.store)
        for name, path in (("@store", store), ("@in", self.inputs), ("@case", self.case)):
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
    found = {}
    for folder, folders, files in os.walk(root):
        for name in (*files, *(n for n in folders if os.path.islink(f"{folder}/{n}"))):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            said = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else f"kind {mode:o}"
            found[path.relative_to(root).as_posix()] = said
    return found


def _mounts(folder: Path) -> list[str]:
    """What is mounted below a folder, the last one first."""
    lines = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    return [line.split()[1] for line in reversed(lines) if line.split()[1].startswith(f"{folder}/")]
