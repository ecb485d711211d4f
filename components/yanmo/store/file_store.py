"""The `file://` backend: a folder on a POSIX file system that has hard links and flock.

An object becomes visible whole by write-to-temporary, fsync, and link or rename; `create` is link(2),
which fails when the name exists; `replace` is a lock around read, compare and rename.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
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
from typing import IO, BinaryIO, Concatenate, ParamSpec, TypeVar

from yanmo.common.errors import DataError, StorageError, StoreUnusable
from yanmo.store.objects import (
    MAX_DOCUMENT_BYTES,
    AlreadyExists,
    Changed,
    Leftover,
    ObjectInfo,
    Wanted,
    Written,
    check_name,
    check_sha256,
    check_size,
    is_name,
)

_TEMPORARY = ".tmp-"
_LOCKS = ".locks"
_TRIES = 100
"""How often a folder is made that others remove in between; each time costs them a removal."""
_FOR_GOOD = {errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


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
        try:
            folder.mkdir()
        except FileExistsError:  # another writer's, maybe gone again: the caller tries again
            if _is_no_folder(folder):
                raise
        fsync_dir(folder.parent)


def _is_no_folder(path: Path) -> bool:
    """Whether something lies at `path` that is no folder: a file, or a link that leads nowhere."""
    try:
        return not stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return path.is_symlink()


def _opened_in_folder(path: Path) -> BinaryIO:
    """The new file `path`, its folder made; again where `delete` took the empty folder in between."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            make_folders(path.parent)
            return path.open("xb")
    raise StoreUnusable(f"{path.parent}: this folder cannot be made; give another --store")


def _explained(
    method: Callable[Concatenate[FileStore, _Given], _Answer],
) -> Callable[Concatenate[FileStore, _Given], _Answer]:
    """`method`, which says what to do where the system only says "permission denied"."""

    @functools.wraps(method)
    def explained(store: FileStore, /, *args: _Given.args, **options: _Given.kwargs) -> _Answer:
        with store.explaining():
            return method(store, *args, **options)

    return explained


def _unless_gone(error: OSError) -> None:
    """For os.walk, which passes over a folder that it cannot read: only one that is gone may be."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _remove_abandoned(path: Path) -> None:
    """Remove a temporary file unless its writer lives, which holds its lock."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _is_at(file: IO[str], path: Path) -> bool:
    """Whether the open file is the one that lies at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


class FileStore:
    """A folder on a POSIX file system that has hard links and flock."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.uri = self.root.as_uri()

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Errors of the system that no later try mends, in words.

        Raises:
            StoreUnusable: a file or a broken link where a folder should be, or no permission.
        """
        try:
            yield
        except OSError as error:
            if error.errno and not error.filename:  # of a read or write, which knows no name
                error.filename = str(self.root)
            if error.errno not in _FOR_GOOD:
                raise
            raise StoreUnusable(
                f"{error.filename or self.root}: {error.strerror}. The store {self.uri} must be a "
                f"folder that user {os.geteuid()} may read and write: change its owner or mode, or give "
                "another --store"
            ) from error

    def _path(self, name: str) -> Path:
        return self.root / check_name(name)

    @_explained
    def read(self, name: str) -> tuple[bytes, str]:
        with self._opened(name) as file:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise DataError(
                f"{self.uri}/{name}: over {MAX_DOCUMENT_BYTES} bytes, no document of Yanmo; restore it"
            )
        return data, hashlib.sha256(data).hexdigest()

    def _opened(self, name: str) -> io.BufferedReader:
        """The file of an object, which is never waited for.

        Raises:
            DataError: a pipe, a device, a socket or a link to nothing lies in its place.
            FileNotFoundError: nothing does.
        """
        path = self._path(name)
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ENOENT and path.is_symlink():
                raise self._no_object(name, "a link to nothing") from None
            if error.errno == errno.ENXIO:
                raise self._no_object(name, "a socket") from None
            raise
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            raise self._no_object(name, "a pipe or a device")
        return os.fdopen(file, "rb")

    def _no_object(self, name: str, found: str) -> DataError:
        return DataError(f"{self.uri}/{name}: expected a file, found {found}; remove it, or restore the file")

    @_explained
    def create(self, name: str, data: bytes) -> str:
        path = self._path(name)
        with self._temporary(path, data) as temporary:
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
        fsync_dir(path.parent)
        return hashlib.sha256(data).hexdigest()

    @_explained
    def replace(self, name: str, data: bytes, version: str) -> str:
        path = self._path(name)
        with self._locked(name):
            try:
                current = self.read(name)[1]
            except FileNotFoundError:
                current = "no object"
            if current != version:
                raise Changed(f"{self.uri}/{name}: expected version {version}, found {current}")
            with self._temporary(path, data) as temporary:
                os.replace(temporary, path)
            fsync_dir(path.parent)
        return hashlib.sha256(data).hexdigest()

    @_explained
    def stat(self, name: str) -> ObjectInfo | None:
        path = self._path(name)
        if path.is_file():
            return self._info(name, path)
        if not os.path.lexists(path) or path.is_file():  # somebody made it meanwhile
            return self._info(name, path) if path.is_file() else None
        raise self._no_object(name, "a folder" if path.is_dir() else "something else")

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        found = [self.stat(name) for name in names]
        return [None if info is None else info.bytes for info in found]

    def clock(self) -> float:
        return time.time()

    @_explained
    def writable(self, prefix: str) -> Path:
        path = self._path(prefix)
        make_folders(path)
        return path

    @_explained
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

    @_explained
    def link(self, pairs: Sequence[tuple[Wanted, str]]) -> None:
        """Hard links: the second name costs no space, and removing the first leaves it whole."""
        for wanted, name in pairs:
            source, target = self._fetch(wanted), self._path(name)
            make_folders(target.parent)
            try:
                os.link(source, target)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
                    raise
                shutil.copyfile(source, target)  # a file has as many names as its file system allows
                with target.open("rb") as file:
                    os.fsync(file.fileno())
        for folder in {self._path(name).parent for _, name in pairs}:
            fsync_dir(folder)

    def discard(self, prefix: str, names: Sequence[str]) -> None:
        shutil.rmtree(self._path(prefix), ignore_errors=True)

    def settle(self, prefix: str) -> None:
        """The files are the objects; nothing to do."""

    def fetch(self, wanted: Sequence[Wanted]) -> list[Path]:
        return [self._fetch(one) for one in wanted]

    def release(self, paths: Sequence[Path]) -> None:
        """The files are the objects; nothing to do."""

    @_explained
    def _fetch(self, wanted: Wanted) -> Path:
        path = self._path(wanted.name)
        check_size(f"{self.uri}/{wanted.name}", wanted, path.stat().st_size if path.is_file() else None)
        with path.open("rb") as file:
            check_sha256(f"{self.uri}/{wanted.name}", wanted, hashlib.file_digest(file, "sha256").hexdigest())
        return path

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        for path in self._files(prefix):
            if not path.name.startswith(_TEMPORARY):
                with contextlib.suppress(FileNotFoundError):  # deleted while we list
                    yield self._info(path.relative_to(self.root).as_posix(), path)

    @_explained
    def digest(self, name: str) -> Written | None:
        try:
            with self._opened(name) as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                return Written(file.tell(), sha256)
        except (FileNotFoundError, IsADirectoryError):
            return None

    @_explained
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
        yield from self._empty_folders()
        for path in self._files(""):
            if path.name.startswith(_TEMPORARY):
                with contextlib.suppress(FileNotFoundError):
                    info = self._info(path.relative_to(self.root).as_posix(), path)
                    remove = functools.partial(_remove_abandoned, path)
                    yield Leftover(info.name, "temporary file", info.bytes, info.modified, remove)

    def _empty_folders(self) -> Iterator[Leftover]:
        for folder, folders, files in self._folders(self.root):
            path = Path(folder)
            name = path.relative_to(self.root).as_posix()
            if not folders and not files and name.count("/") > 1 and is_name(name):
                with contextlib.suppress(FileNotFoundError):
                    modified = path.stat().st_mtime
                    yield Leftover(name, "empty folder", 0, modified, functools.partial(self._prune, path))

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

    @contextlib.contextmanager
    def _temporary(self, path: Path, data: bytes) -> Iterator[Path]:
        """A durable file with `data` next to `path`, locked while it is in use and gone afterwards."""
        temporary = path.parent / f"{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            with _opened_in_folder(temporary) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                yield temporary
        finally:  # a full disk, but also Ctrl-C
            temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        folder = self.root / _LOCKS
        path = folder / hashlib.sha256(name.encode()).hexdigest()[:32]
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not _is_at(file, path):
                    continue  # its last holder removed it: the lock is another file by now
                try:
                    yield
                finally:  # names of sessions are drawn: their locks would stay for ever
                    path.unlink(missing_ok=True)
                return
