"""Objects of a store: what every backend must do, and the `file://` backend.

Everything above this file (manifests, leases, pointers) needs just two promises: an object that
becomes visible is whole, and `create` / `replace` are conditional (S3's If-None-Match and If-Match).
On a POSIX file system the first is write-to-temporary + fsync + link or rename, the second is
link(2), which fails when the name exists, and a lock around read-compare-rename.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from yanmo.common.errors import DataError, StorageError, UsageError

_NAME = re.compile(r"[A-Za-z0-9._=-]{1,200}\Z")
_TEMPORARY = ".tmp-"
_LOCKS = ".locks"


class AlreadyExists(StorageError):
    """`create` found an object of that name."""


class Changed(StorageError):
    """`replace` found another version than the caller had read."""


class ObjectStore(Protocol):
    """A flat space of named objects. Names are relative, `/`-separated, from an allow-list."""

    uri: str

    def read(self, name: str) -> tuple[bytes, str]:
        """The object's bytes and its version (ETag).

        Raises:
            FileNotFoundError: there is none.
        """

    def create(self, name: str, data: bytes) -> str:
        """Write a new object, whole, and return its version.

        Raises:
            AlreadyExists: the name is taken; nothing was written.
        """

    def replace(self, name: str, data: bytes, version: str) -> str:
        """Write over `version` of the object and return the new version.

        Raises:
            Changed: the object is gone or has another version; nothing was written.
        """

    def size(self, name: str) -> int | None:
        """The object's size in bytes, or None where there is none."""

    def writable(self, prefix: str) -> Path:
        """A local folder whose files `publish` puts under `prefix`; made when absent."""

    def publish(self, prefix: str, name: str) -> None:
        """Make the file `name` of `writable(prefix)` durable as the object `prefix/name`."""

    def local(self, name: str) -> Path:
        """A local file with the object's bytes (a path that may be memory-mapped, not written)."""

    def list(self, prefix: str) -> Iterator[str]:
        """Names of all objects below `prefix`, sorted. Only tools list; stages never do."""

    def delete(self, name: str) -> None:
        """Remove the object; no error where there is none."""


def check_name(name: str) -> str:
    """`name`, when every part of it comes from the allow-list.

    Raises:
        DataError: an empty part, `..`, a control character, or a part over 200 characters. Names come
            from manifests and references, so a bad one is bad data.
    """
    parts = name.split("/")
    if len(name) > 900 or not all(_NAME.match(p) and p.strip(".") for p in parts):
        shown = name if len(name) <= 100 else name[:100] + "..."
        raise DataError(f"refused object name {shown!r}: parts must match {_NAME.pattern}")
    return name


def fsync_dir(path: Path) -> None:
    """Make renames inside the folder `path` durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folders(path: Path) -> None:
    """Make the folder `path` and its parents, durable: a folder is an entry of its parent."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        fsync_dir(folder.parent)


class FileStore:
    """A folder on a POSIX file system that has hard links and flock."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.uri = self.root.as_uri()

    def _path(self, name: str) -> Path:
        return self.root / check_name(name)

    def read(self, name: str) -> tuple[bytes, str]:
        data = self._path(name).read_bytes()
        return data, hashlib.sha256(data).hexdigest()

    def create(self, name: str, data: bytes) -> str:
        path = self._path(name)
        temporary = self._write_temporary(path, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise AlreadyExists(f"{self.uri}/{name}: already there") from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
                raise
            raise StorageError(
                f"{self.uri}: this file system has no hard links ({error.strerror}), so writers "
                "cannot be kept apart; put the store on a local disk"
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
        fsync_dir(path.parent)
        return hashlib.sha256(data).hexdigest()

    def replace(self, name: str, data: bytes, version: str) -> str:
        path = self._path(name)
        with self._locked(name):
            try:
                current = self.read(name)[1]
            except FileNotFoundError:
                current = "no object"
            if current != version:
                raise Changed(f"{self.uri}/{name}: expected version {version}, found {current}")
            temporary = self._write_temporary(path, data)
            try:
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
            fsync_dir(path.parent)
        return hashlib.sha256(data).hexdigest()

    def size(self, name: str) -> int | None:
        path = self._path(name)
        return path.stat().st_size if path.is_file() else None

    def writable(self, prefix: str) -> Path:
        path = self._path(prefix)
        make_folders(path)
        return path

    def publish(self, prefix: str, name: str) -> None:
        path = self._path(f"{prefix}/{name}")
        with path.open("rb") as file:
            os.fsync(file.fileno())
        for folder in path.parents:
            fsync_dir(folder)
            if folder == self.root / prefix:
                break

    def local(self, name: str) -> Path:
        return self._path(name)

    def list(self, prefix: str) -> Iterator[str]:
        base = self._path(prefix) if prefix else self.root
        for path in sorted(base.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if path.is_file() and not path.name.startswith(_TEMPORARY) and not name.startswith(_LOCKS + "/"):
                yield name

    def delete(self, name: str) -> None:
        path = self._path(name)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def _write_temporary(self, path: Path, data: bytes) -> Path:
        make_folders(path.parent)
        temporary = path.parent / f"{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:  # a full disk, but also Ctrl-C
            temporary.unlink(missing_ok=True)
            raise
        return temporary

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        folder = self.root / _LOCKS
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / hashlib.sha256(name.encode()).hexdigest()[:32]).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def open_store(uri: str) -> ObjectStore:
    """The store at `uri`: a folder or `file:///path`.

    Raises:
        UsageError: a scheme that no backend speaks.
    """
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
            raise UsageError(f"--store {uri}: expected file:///absolute/path")
        path = unquote(parts.path) if parts.scheme else uri
        if not path:
            raise UsageError("--store is empty: expected a folder or file:///path")
        store = FileStore(Path(path))
        if store.root.exists() and not store.root.is_dir():
            raise UsageError(f"--store {uri}: expected a folder, found a file")
        return store
    raise UsageError(f"--store {uri}: no backend for {parts.scheme}://; expected file:///path")
