"""Files and folders that survive a power cut, and that their writers share: what FileStore is made of.

A folder is an entry of its parent, a rename one of its folder: each is synced, or it may be gone after a
power cut. Others make, empty and remove the same folders meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from yanmo.common.errors import StoreUnusable

TEMPORARY = ".tmp-"
"""How the names of files begin that are no objects yet."""
_TRIES = 100
"""How often a folder is made that others remove in between; each time costs them a removal."""
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""What link(2) says where a file system has no hard links, or no more of one file."""
LACKING = NO_LINKS | {errno.ENOLCK, errno.EINVAL}
"""Those, what flock(2) says where there are no locks, and fsync(2) where a folder cannot be made durable."""


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
    """Return whether something lies at `path` that is no folder: a file, or a link that leads nowhere."""
    try:
        return not stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return path.is_symlink()


def _opened_in_folder(path: Path) -> BinaryIO:
    """Return the new file `path`, its folder made; again where `delete` took the empty folder in between."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            make_folders(path.parent)
            return path.open("xb")
    raise StoreUnusable(f"{path.parent}: this folder cannot be made; give another --store")


def remove_abandoned(path: Path) -> None:
    """Remove a temporary file unless its writer lives, which holds its lock."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _is_at(file: IO[str], path: Path) -> bool:
    """Return whether the open file is the one that lies at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def temporary_file(path: Path, data: bytes) -> Iterator[Path]:
    """A durable file with `data` next to `path`, locked while it is in use and gone afterwards."""
    found = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        with _opened_in_folder(found) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            yield found
    finally:  # a full disk, but also Ctrl-C
        found.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, *, is_kept: bool = True) -> Iterator[None]:
    """Keep others out who lock the same file, which may be removed while we wait for it.

    Args:
        is_kept: whether it stays; of names that are drawn the locks would stay for ever.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(file, path):
                continue  # its last holder removed it: the lock is another file by now
            try:
                yield
            finally:
                if not is_kept:
                    path.unlink(missing_ok=True)
            return
