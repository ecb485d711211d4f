"""A small real store, made once by the stages themselves, and a copy of it for each case."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torture.place import FilePlace
from torture.stages import CHANNEL, SOURCES, STAGES, run_stage

ALL = tuple(STAGES)
SECOND = {"train": ("--steps=60",), "evaluate": (), "promote": ()}
"""Stage -> what makes its second output better than the first: five times the steps, 10 s of CPU in all."""
DATA = ALL[:3]
"""Stages that need no model: 4 s of CPU instead of 11."""


@dataclass
class Ground:
    """A folder with `store/` and `in/` (what a person has), made again where a case changed it."""

    folder: Path
    stages: tuple[str, ...] = ALL
    _clean: bool = field(default=False, repr=False)
    _made: dict[str, _Traits] = field(default_factory=dict, repr=False)
    """What lies below `case` when it is as it should be."""

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

    def take_template(self, other: Ground) -> None:
        """The store that another ground's stages have made, instead of one of its own."""
        other.make_template()
        shutil.copytree(other.template, self.template, symlinks=True)
        (self.folder / f"made-{len(self.stages)}").touch()

    @property
    def second(self) -> Path:
        """What a second champion adds to the template or changes in it, made when it is first asked for."""
        found, done = self.folder / "second", self.folder / "made-second"
        if done.exists():
            return found
        self.make_template()
        for folder in (found, self.folder / "two"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder / "two", symlinks=True)
        place = FilePlace(self.folder / "two")
        for stage, more in SECOND.items():
            run_stage(stage, place, self.folder, *more)
        before, after = look(self.template), look(place.root)
        assert "pointers/torture/champion.json" in after.keys() & before.keys()
        assert after["pointers/torture/champion.json"] != before["pointers/torture/champion.json"]
        for name in (n for n, content in after.items() if before.get(n) != content):
            (found / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(place.root / name, found / name)
        for folder in (place.root, place.scratch):
            shutil.rmtree(folder, ignore_errors=True)
        done.touch()
        return found

    def renew(self) -> None:
        """Make the case's folder as if nothing had happened in it: mended, or made as a whole."""
        if self._clean:
            return
        self.make_template()
        if not self._made or _mounts(self.case) or not self._mended():
            self._build()
            self._made = dict(_entries(self.case))
        self._clean = True

    def _build(self) -> None:
        _remove(self.case)
        shutil.copytree(self.template, self.store, symlinks=True)
        self.inputs.mkdir()
        self.cwd.mkdir()
        shutil.copy2(SOURCES, self.inputs / "documents.jsonl")
        if "train" in self.stages:
            shutil.copytree(self.store / self.name_of("train"), self.inputs / "model")
        make_odd(self.inputs)

    def _mended(self) -> bool:
        """Whether it is whole again, after what is new was removed and what changed was copied.

        Copies have the time of what they are copies of, so whatever writes one changes its time.
        """
        found = dict(_entries(self.case))
        for name in sorted(found.keys() - self._made.keys()):
            _clear(self.case / name)
        for name, traits in self._made.items():
            if found.get(name) == traits:
                continue
            origin = self._origin(name)
            if origin is None or not (self.case / name).parent.is_dir():
                return False
            _clear(self.case / name)
            shutil.copy2(origin, self.case / name)
        return found == self._made or dict(_entries(self.case)) == self._made

    def _origin(self, name: str) -> Path | None:
        """The file that the file `name` of the case is a copy of."""
        top, _, rest = name.partition("/")
        if name == "in/documents.jsonl":
            return SOURCES
        if top == "in" and rest.startswith("model/"):
            top, rest = "store", f"{self.name_of('train')}/{rest.removeprefix('model/')}"
        found = self.template / rest
        return found if top == "store" and found.is_file() else None

    @property
    def environment(self) -> dict[str, str]:
        """Variables that a command needs to reach the store."""
        return {}

    def publish(self) -> None:
        """Make what a case prepared in `store` what commands see."""

    def look(self) -> dict[str, str]:
        """Every file of the store with what tells its content."""
        return look(self.store)

    def pointers(self) -> dict[str, bytes]:
        """The channel's pointers by name."""
        return {path.stem: path.read_bytes() for path in self.store.glob(f"pointers/{CHANNEL}/*.json")}

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


_Traits = tuple[int, int, int, int]
"""Mode and owner; of files also their size and when they were last written."""
_KNOWN: dict[tuple[int, int, int, int, int], str] = {}
"""Device, inode, size, time of writing, time of change of a file -> its sha256."""


def look(root: Path) -> dict[str, str]:
    """Everything below a folder: the sha256 of files, the kind of everything else; nothing is waited for."""
    return {
        name: _content(f"{root}/{name}", state)
        for name, state in _walked(f"{root}")
        if not stat.S_ISDIR(state.st_mode)
    }


def _content(path: str, state: os.stat_result) -> str:
    """A file's sha256, computed once for as long as nobody writes to it; the kind of everything else."""
    if not stat.S_ISREG(state.st_mode):
        return f"kind {stat.S_IFMT(state.st_mode):o}"
    key = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    if key not in _KNOWN:
        _KNOWN[key] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return _KNOWN[key]


def _entries(root: Path) -> Iterator[tuple[str, _Traits]]:
    """Everything below a folder, with what would tell that it was changed."""
    for name, state in _walked(f"{root}"):
        is_file = stat.S_ISREG(state.st_mode)
        written = (state.st_size, state.st_mtime_ns) if is_file else (0, 0)
        yield name, (state.st_mode, state.st_uid, *written)


def _walked(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Name below `root` and state of everything there; what disappears meanwhile is passed over."""
    left = [""]
    while left:
        folder = left.pop()
        with contextlib.suppress(OSError):  # gone, no folder, a link to itself
            with os.scandir(f"{root}/{folder}") as entries:
                found = list(entries)
            for entry in found:
                with contextlib.suppress(FileNotFoundError):
                    yield f"{folder}{entry.name}", entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        left.append(f"{folder}{entry.name}/")


def _clear(path: Path) -> None:
    """Nothing is at `path` any more."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _mounts(folder: Path) -> list[str]:
    """What is mounted below a folder, the last one first."""
    lines = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    return [line.split()[1] for line in reversed(lines) if line.split()[1].startswith(f"{folder}/")]


def _remove(folder: Path) -> None:
    """The folder, and what is mounted in it."""
    for mount in _mounts(folder):
        subprocess.run(["umount", "-l", mount], check=True)
    shutil.rmtree(folder, ignore_errors=True)
    assert not folder.exists(), folder
