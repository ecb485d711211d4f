"""Files of a task that is done on another machine: named where it is asked for, brought where it is done.

A path in a task or in its result is pickled as one of these:

    ("stored", name, bytes, sha256)   an object of the store: fetched and verified where it is read
    ("seen", path)                    a file in a store that is a folder, which all machines see
    ("sent", number, name)            a file of this process, which goes along as an object of Ray's
    ("made", name, is_folder)         a file (or files of a folder) of an attempt, which the task makes

What a task makes lies in a folder of this one try until it is whole; then it gets its place. So a task may be
done twice, also at the same time: where a node is lost, nobody knows whether its task was.
"""

from __future__ import annotations

import io
import pickle
import shutil
import socket
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from yanmo.common.errors import EnvironmentFault
from yanmo.store.commit import Attempt
from yanmo.store.objects import ObjectStore, Wanted, Written
from yanmo.store.output import Output

Reference = tuple[Any, ...]
Made = list[tuple[str, int, str]]
"""Name, bytes and sha256 of each file that a task put into the store."""
_ATTEMPT_PARTS = 4
"""cas/<stage>/<key>/<attempt>"""


def packed(value: Any, reference: Callable[[Path], Reference]) -> bytes:
    """Return a value pickled, with a reference in the place of each path."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, found: Any) -> Reference | None:
            return reference(Path(found)) if isinstance(found, PurePath) else None

    buffer = io.BytesIO()
    Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def unpacked(data: bytes, path: Callable[[Reference], Path]) -> Any:
    """Return the value of `packed`."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, found: Reference) -> Path:
            return path(found)

    return Unpickler(io.BytesIO(data)).load()


class FilesAsked:
    """The files of tasks as the process sees them that asks for the work; used by several threads."""

    def __init__(self, store: ObjectStore, send: Callable[[Path], Any]) -> None:
        """Args:
        send: makes a file an object of Ray's.
        """
        self._store, self._send = store, send
        self._stored: dict[Path, Wanted] = {}
        """What lies in the store, by its path here, also where it is not here."""

    def places(self, output: Output, pattern: str) -> list[Path]:
        """Return the paths that `Output.paths` would give; only tasks can read them."""
        entries = output.entries(pattern)
        if not entries:
            return output.paths(pattern)  # it says what there is
        found = []
        for entry in entries:
            wanted = output.wanted(entry)
            found.append(self._store.place(wanted))
            self._stored[found[-1]] = wanted
        return found

    def task(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bytes, list[Any]]:
        """Return a call for `FilesHere.task`, and the objects that go along."""
        sent: list[Any] = []

        def reference(path: Path) -> Reference:
            wanted = self._stored.get(path) or self._store.wanted_at(path)
            name = self._store.name_of(path)
            if wanted:
                return "stored", wanted.name, wanted.bytes, wanted.sha256
            if name and not path.is_file():
                return "made", name, path.is_dir()
            if name and self._store.is_shared:
                return "seen", str(path)
            sent.append(self._send(path))
            return "sent", len(sent) - 1, path.name

        return packed((function, arguments), reference), sent

    def result(self, data: bytes, made: Made) -> Any:
        """Return the result of a task, and remember what it made."""
        for name, size, sha256 in made:
            self._stored[self._path_of(name)] = Wanted(name, size, sha256)
        return unpacked(data, lambda reference: self._path_of(reference[1]))

    def _path_of(self, name: str) -> Path:
        folder, _, last = name.rpartition("/")
        return self._store.writable(folder) / last

    def written(self, attempt: Attempt, names: Sequence[str]) -> dict[str, Written]:
        """Return what tasks put into the store of the files of `attempt` with these names."""
        found = {name: self._stored.get(attempt.directory / name) for name in names}
        return {name: Written(one.bytes, one.sha256) for name, one in found.items() if one}

    def brought(self, path: Path) -> Path:
        """Return a file that tasks made as one of this machine."""
        return self._store.fetch([self._stored[path]])[0] if path in self._stored else path

    def remove(self, folder: Path) -> None:
        """Remove what tasks made below a folder of an attempt."""
        for path in [path for path in list(self._stored) if path.is_relative_to(folder)]:
            made = self._stored.pop(path)
            if not self._store.is_shared:
                self._store.delete(made.name)


class FilesHere:
    """The files of one task where it is done."""

    def __init__(self, store: ObjectStore, sent: Sequence[Any], keep: Callable[[Any, str], Path]) -> None:
        """Args:
        sent: the objects that came along.
        keep: writes one to a file of this process, once.
        """
        self._store, self._sent, self._keep = store, sent, keep
        self._fetched: list[Path] = []
        self._attempt = ""

    def task(self, data: bytes) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return the function and the arguments of a task, with its files on this machine."""
        function, arguments = unpacked(data, self._path)
        return function, arguments

    def _path(self, reference: Reference) -> Path:
        kind, *rest = reference
        if kind == "stored":
            self._fetched += self._store.fetch([Wanted(*rest)])
            return self._fetched[-1]
        if kind == "seen":
            check_seen_here(Path(rest[0]))
            return Path(rest[0])
        if kind == "sent":
            return self._keep(self._sent[rest[0]], rest[1])
        self._attempt = "/".join(rest[0].split("/")[:_ATTEMPT_PARTS])
        path: Path = self._try / rest[0].removeprefix(self._attempt).lstrip("/")
        (path if rest[1] else path.parent).mkdir(parents=True, exist_ok=True)
        return path

    @cached_property
    def _try(self) -> Path:
        return self._store.new_try(self._attempt)

    def result(self, value: Any) -> tuple[bytes, Made]:
        """Put what the task made into the store; return its result and what that was."""
        made: Made = []
        names: list[str] = []
        if self._attempt:
            names = sorted(p.relative_to(self._try).as_posix() for p in self._try.rglob("*") if p.is_file())
            written = self._store.publish_try(self._attempt, self._try, names)
            made = [(f"{self._attempt}/{n}", w.bytes, w.sha256) for n, w in zip(names, written, strict=True)]

        def reference(path: Path) -> Reference:
            return "made", f"{self._attempt}/{path.relative_to(self._try).as_posix()}", False

        return packed(value, reference), made

    def close(self) -> None:
        """Remove the folder of this try, and let go of what was fetched."""
        if self._attempt:
            shutil.rmtree(self._try, ignore_errors=True)
        self._store.release(self._fetched)


_is_worker = False


def mark_worker() -> None:
    """This process is a worker of a cluster."""
    global _is_worker
    _is_worker = True


def check_seen_here(path: Path) -> None:
    """Raise `EnvironmentFault` where this is a worker of a cluster that does not see a file."""
    if _is_worker and not path.is_file():
        raise not_seen(str(path))


def not_seen(path: str) -> EnvironmentFault:
    """Return the error of a file that only other machines see."""
    return EnvironmentFault(
        f"{path}: node {socket.gethostname()} of the Ray cluster does not see it. What a run on a cluster "
        "reads and writes must be where all nodes reach it: --store and --sources in a bucket (s3://), or in "
        "a folder that all of them mount at the same place"
    )
