"""The `file://` backend: a folder on a POSIX file system that has hard links and flock.

An object becomes visible whole by write-to-temporary, fsync, and link or rename; `create` is link(2),
which fails when the name exists; `replace` is a lock around read, compare and rename.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import io
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from yanmo.common.errors import DataError, StoreUnusable
from yanmo.store.durable_files import (
    LACKING,
    NO_LINKS,
    TEMPORARY,
    fsync_dir,
    locked,
    make_folders,
    remove_abandoned,
    temporary_file,
)
from yanmo.store.objects import (
    MAX_DOCUMENT_BYTES,
    AlreadyExists,
    Changed,
    Leftover,
    ObjectInfo,
    RequestKind,
    Wanted,
    Written,
    check_name,
    check_sha256,
    check_size,
    count_request,
    is_name,
)

_LOCKS = ".locks"
_TRY = ".try-"
_FOR_GOOD = {
    *(errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG),
    *LACKING,
}
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _request(kind: RequestKind | None = None) -> Callable[[_Method], _Method]:
    """Return a method that is counted, and says what to do where the system says "permission denied" only."""

    def counted(method: _Method) -> _Method:
        @functools.wraps(method)
        def request(store: FileStore, /, *args: Any, **options: Any) -> Any:
            if kind:
                count_request(kind)
            with store.explaining():
                return method(store, *args, **options)

        return cast(_Method, request)

    return counted


def _unless_gone(error: OSError) -> None:
    """For os.walk, which passes over a folder that it cannot read: only one that is gone may be."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


class FileStore:
    """A folder on a POSIX file system that has hard links and flock."""

    is_shared = True

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.uri = self.root.as_uri()

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Errors of the system that no later try mends, in words.

        Raises:
            StoreUnusable: a file or a broken link where a folder should be, no permission, no hard links.
        """
        try:
            yield
        except OSError as error:
            if error.errno and not error.filename:  # of a read or write, which knows no name
                error.filename = str(self.root)
            if error.errno not in _FOR_GOOD:
                raise
            raise StoreUnusable(
                f"{error.filename or self.root}: {error.strerror}. The store {self.uri} must be a folder "
                f"that user {os.geteuid()} may read and write, on a file system with hard links and locks (a "
                "local disk: ext4, XFS; or NFS): change its owner or mode, or give another --store"
            ) from error

    def _path(self, name: str) -> Path:
        return self.root / check_name(name)

    @_request("read")
    def read(self, name: str) -> tuple[bytes, str]:
        with self._opened(name) as file:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise DataError(
                f"{self.uri}/{name}: over {MAX_DOCUMENT_BYTES} bytes, no document of Yanmo; restore it"
            )
        return data, hashlib.sha256(data).hexdigest()

    def _opened(self, name: str) -> io.BufferedReader:
        """Return the file of an object; a pipe in its place is not waited for, and a device not read.

        Raises:
            DataError: it is no file, or a link to nothing.
            FileNotFoundError: nothing is there.
        """
        path = self._path(name)
        try:
            file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file
            file.close()
        except OSError as error:
            if error.errno != errno.ENXIO and not (error.errno == errno.ENOENT and path.is_symlink()):
                raise
        raise DataError(
            f"{self.uri}/{name}: expected a file, found a pipe, a device or a link to nothing; remove it, or "
            "restore the file"
        )

    @_request("write")
    def create(self, name: str, data: bytes) -> str:
        path = self._path(name)
        with temporary_file(path, data) as temporary:
            try:
                os.link(temporary, path)
            except FileExistsError:
                raise AlreadyExists(f"{self.uri}/{name}: already there") from None
        fsync_dir(path.parent)
        return hashlib.sha256(data).hexdigest()

    @_request("write")
    def replace(self, name: str, data: bytes, version: str) -> str:
        path = self._path(name)
        lock = self.root / _LOCKS / hashlib.sha256(name.encode()).hexdigest()[:32]
        with locked(lock, is_kept=False):  # names of sessions are drawn
            try:
                current = self.read(name)[1]
            except FileNotFoundError:
                current = "no object"
            if current != version:
                raise Changed(f"{self.uri}/{name}: expected version {version}, found {current}")
            with temporary_file(path, data) as temporary:
                os.replace(temporary, path)
            fsync_dir(path.parent)
        return hashlib.sha256(data).hexdigest()

    @_request("stat")
    def stat(self, name: str) -> ObjectInfo | None:
        path = self._path(name)
        try:
            found = path.stat()  # once: it may be deleted or made meanwhile
        except (FileNotFoundError, NotADirectoryError):
            return None
        return ObjectInfo(name, found.st_size, found.st_mtime) if stat.S_ISREG(found.st_mode) else None

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        found = [self.stat(name) for name in names]
        return [None if info is None else info.bytes for info in found]

    def clock(self) -> float:
        return time.time()

    @_request()
    def writable(self, prefix: str) -> Path:
        path = self._path(prefix)
        make_folders(path)
        return path

    @_request("write")
    def publish(self, prefix: str, names: Sequence[str]) -> list[Written]:
        return [self._publish(prefix, name) for name in names]

    def _publish(self, prefix: str, name: str) -> Written:
        path = self._path(f"{prefix}/{name}")
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
            written = Written(file.tell(), sha256)
        for folder in path.parents:
            fsync_dir(folder)
            if folder == self.root / prefix:
                break
        return written

    @_request()
    def new_try(self, prefix: str) -> Path:
        path = self._path(f"{prefix}/{_TRY}{uuid.uuid4().hex}")
        path.mkdir()  # not its parents: the attempt may have ended
        return path

    @_request("write")
    def publish_try(self, prefix: str, folder: Path, names: Sequence[str]) -> list[Written]:
        written = [self._publish(f"{prefix}/{folder.name}", name) for name in names]
        for name in names:
            os.replace(folder / name, self._path(f"{prefix}/{name}"))
        for place in {self._path(f"{prefix}/{name}").parent for name in names}:
            fsync_dir(place)
        return written

    def name_of(self, path: Path) -> str | None:
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else None

    def place(self, wanted: Wanted) -> Path:
        return self._path(wanted.name)

    def wanted_at(self, path: Path) -> Wanted | None:
        return None

    @_request("copy")
    def link(self, pairs: Sequence[tuple[Wanted, str]]) -> None:
        """Hard links: the second name costs no space, and removing the first leaves it whole."""
        for wanted, name in pairs:
            source, target = self._fetch(wanted), self._path(name)
            make_folders(target.parent)
            try:
                os.link(source, target)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                shutil.copyfile(source, target)  # a file has as many names as its file system allows
                with target.open("rb") as file:
                    os.fsync(file.fileno())
        for folder in {self._path(name).parent for _, name in pairs}:
            fsync_dir(folder)

    def discard(self, prefix: str, names: Sequence[str]) -> None:
        shutil.rmtree(self._path(prefix), ignore_errors=True)

    def settle(self, prefix: str) -> None:
        """The files are the objects; only what lost tries at tasks left may go."""
        for folder in self._path(prefix).glob(f"{_TRY}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Path]:
        return [self._fetch(one) for one in wanted]

    def release(self, paths: Sequence[Path]) -> None:
        """The files are the objects; nothing to do."""

    @_request("read")
    def _fetch(self, wanted: Wanted) -> Path:
        path = self._path(wanted.name)
        check_size(f"{self.uri}/{wanted.name}", wanted, path.stat().st_size if path.is_file() else None)
        with path.open("rb") as file:
            check_sha256(f"{self.uri}/{wanted.name}", wanted, hashlib.file_digest(file, "sha256").hexdigest())
        return path

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        count_request("list")
        for path in self._files(prefix):
            if not path.name.startswith(TEMPORARY):
                with contextlib.suppress(FileNotFoundError):  # deleted while we list
                    yield self._info(path.relative_to(self.root).as_posix(), path)

    @_request("read")
    def digest(self, name: str) -> Written | None:
        try:
            with self._opened(name) as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                return Written(file.tell(), sha256)
        except (FileNotFoundError, IsADirectoryError):
            return None

    @_request("delete")
    def delete(self, name: str) -> None:
        path = self._path(name)
        path.unlink(missing_ok=True)
        self._prune(path.parent)

    def _prune(self, folder: Path) -> None:
        """Remove empty folders upwards, except the first two levels (cas/train), where writers start."""
        while len(folder.relative_to(self.root).parts) > 2:
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                return
            folder = folder.parent

    def leftovers(self) -> Iterator[Leftover]:
        for path in self._files(""):
            if path.name.startswith(TEMPORARY):
                with contextlib.suppress(FileNotFoundError):
                    info = self._info(path.relative_to(self.root).as_posix(), path)
                    remove = functools.partial(remove_abandoned, path)
                    yield Leftover(info.name, "temporary file", info.bytes, info.modified, remove)

    def _files(self, prefix: str) -> Iterator[Path]:
        base = self._path(prefix) if prefix else self.root
        found = [Path(folder, name) for folder, _, files in self._folders(base) for name in files]
        for path in sorted(found):
            name = path.relative_to(self.root).as_posix()
            if is_name(name) and path.is_file() and not name.startswith(f"{_LOCKS}/"):
                yield path

    def _folders(self, base: Path) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
        """Folders below `base` with their folders and files, all of them: gc removes what nothing names."""
        with self.explaining():
            yield from os.walk(base, onerror=_unless_gone)

    def _info(self, name: str, path: Path) -> ObjectInfo:
        status = path.stat()
        return ObjectInfo(name, status.st_size, status.st_mtime)
