"""Scratch: a node's local disk, for work in progress and as a read-through cache of store objects.

    <scratch>/objects/ab/<sha256>          a verified object; its name is its content
    <scratch>/objects/ab/<sha256>.lock     held while it is being downloaded
    <scratch>/processes/<id>/lock          held while the process lives
    <scratch>/processes/<id>/pins/         hard links to the objects it was handed
    <scratch>/processes/<id>/writing/      files it is writing
    <scratch>/kept/<store>/...             work that outlives a process (checkpoints)

All ranks and pods of a node may share one scratch. A file is downloaded by one of them while the others wait
for its lock; it gets its name only after its sha256 was checked, so a name means verified bytes. Nothing is
synced: a file carries the stamp of this boot, and one of another boot (or one that somebody wrote to) is
hashed again before it is used. A kill releases the locks (flock) and leaves a process folder that the next
process sweeps away. Evicting a file only takes its name: whoever was handed it holds a hard link of his own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import shutil
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from yanmo.common.errors import EnvironmentFault, StorageError
from yanmo.common.logs import human_bytes
from yanmo.store.durable_files import LACKING, locked

_TRIES = 5
_RESCAN_SHARE = 0.02
"""Share of the cap that a process adds before it looks again at what others have added."""


@functools.cache
def _stamp() -> int:
    """Return the modification time (Unix seconds) that means: verified since this machine started."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:  # not Linux: every process verifies for itself
        boot = uuid.uuid4().bytes
    return 1_000_000_000 + zlib.crc32(boot) % 500_000_000


class Scratch:
    """One process's view of a scratch folder."""

    def __init__(self, root: Path, cap_bytes: int) -> None:
        self.root, self.cap_bytes = root, cap_bytes
        self._lock = threading.Lock()
        self._process: Path | None = None
        self._held: int = -1
        self._used, self._added = 0, cap_bytes  # bytes seen at the last look, and added since: look at once
        self._pid = 0

    @property
    def process(self) -> Path:
        """This process's own folder, made at first use; a forked child gets its own."""
        with self._lock, _friendly(self.root):
            if self._process is None or self._pid != os.getpid():
                _sweep_processes(self.root / "processes")
                self._process, self._held = _claim(self.root / "processes")
                self._pid = os.getpid()
            return self._process

    def work(self, name: str) -> Path:
        """Return a folder for files being written; gone when the process ends."""
        path = self.process / "writing" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def kept_work(self, name: str) -> Path:
        """Return a folder for work that outlives the process."""
        path = self.root / "kept" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def pin(self, name: str) -> Path:
        """Return the path that `get` gives."""
        return self.process / "pins" / name

    def name_of(self, path: Path) -> str | None:
        """Return the `name` of a path of `pin` or below one of `work`; None for other files."""
        for folder in ("pins", "writing"):
            if path.is_relative_to(self.process / folder):
                return path.relative_to(self.process / folder).as_posix()
        return None

    def get(self, name: str, sha256: str, size: int, download: Callable[[Path], None]) -> Path:
        """Return the file of that content, downloaded unless it is there; usable until the process ends.

        Args:
            name: how this process shall see it; files of one folder of the store lie in one folder.
            download: writes the bytes to the path it is given, or raises; they must be checked by it.

        Raises:
            EnvironmentFault: it cannot fit below the cap.
        """
        with _friendly(self.root):
            pin = self.pin(name)
            pin.parent.mkdir(parents=True, exist_ok=True)
            if _is_whole(pin, sha256, size):
                return pin
            pin.unlink(missing_ok=True)
            for _ in range(_TRIES):
                if self._pin_or_bring(self._path(sha256), pin, sha256, size, download):
                    return pin
            raise StorageError(f"{self.root}: {name} was evicted {_TRIES} times before it could be held")

    def _pin_or_bring(
        self, path: Path, pin: Path, sha256: str, size: int, download: Callable[[Path], None]
    ) -> bool:
        """Return whether `pin` holds the file; False where it was evicted before that."""
        if _pin(path, pin, sha256, size):
            return True
        with contextlib.suppress(FileNotFoundError), locked(path.with_name(f"{sha256}.lock")):
            if _pin(path, pin, sha256, size):  # another process may have brought it while we waited
                return True
            self._make_room(size)
            self._bring(path, download)
            return _pin(path, pin, sha256, size)
        return False  # what was brought was taken away before it had its name

    def release(self, path: Path) -> None:
        """Give up a file that `get` returned."""
        if self._process is not None and path.is_relative_to(self._process / "pins"):
            path.unlink(missing_ok=True)

    def adopt(self, path: Path, sha256: str) -> None:
        """Take a hashed file of this process's work into the cache; no error if that cannot be."""
        target = self._path(sha256)
        with contextlib.suppress(OSError, EnvironmentFault), locked(target.with_name(f"{sha256}.lock")):
            if not target.exists():
                self._make_room(0)  # the file is on this disk already
                _seal(path, target)

    def _path(self, sha256: str) -> Path:
        path = self.root / "objects" / sha256[:2] / sha256
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _bring(self, path: Path, download: Callable[[Path], None]) -> None:
        """Download, and once more after evicting all that nobody uses where the disk itself was full."""
        try:
            _bring(path, download)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._evict(0)[1]:
                raise
            _bring(path, download)

    def _make_room(self, size: int) -> None:
        """See to it that `size` more bytes fit below the cap; looks at the disk only now and then."""
        with self._lock:
            self._added += size
            if self._used + self._added <= self.cap_bytes and self._added < self.cap_bytes * _RESCAN_SHARE:
                return
            self._used, _ = self._evict(max(0, self.cap_bytes - size))
            self._added = size
        if self._used + size > self.cap_bytes:
            raise EnvironmentFault(
                f"{self.root}: a file of {human_bytes(size)} does not fit: {human_bytes(self._used)} are in "
                f"use and the cap is {human_bytes(self.cap_bytes)}; raise --scratch-gib"
            )

    def _evict(self, goal: int) -> tuple[int, int]:
        """Evict what was used longest ago until at most `goal` bytes are left.

        Returns:
            Bytes that are left, and bytes that were freed.
        """
        with locked(self.root / "objects" / "evict.lock"):
            _sweep_processes(self.root / "processes")
            _sweep_downloads(self.root / "objects")
            entries = sorted(self._entries(), key=lambda entry: entry[0])
            used = total = sum(size for _, size, _, _ in entries)
            for _, size, links, path in entries:
                if used <= goal:
                    break
                if links == 1:  # nobody holds it
                    path.unlink(missing_ok=True)
                    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
                    used -= size
        return used, total - used

    def _entries(self) -> Iterator[tuple[float, int, int, Path]]:
        """Last use, bytes, hard links and path of every cached object."""
        for path in (self.root / "objects").glob("??/*"):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if path.suffix not in (".lock", ".part"):
                    yield status.st_atime, status.st_size, status.st_nlink, path


@contextlib.contextmanager
def _friendly(root: Path) -> Iterator[None]:
    """Say what to do where another user's files are in the way, or the file system lacks something."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, *LACKING):
            raise
        raise EnvironmentFault(
            f"{error.filename or root}: {error.strerror}; give each user a scratch folder of their own "
            "(--scratch), on a file system with hard links and locks: a local disk (ext4, XFS) or NFS"
        ) from error


def _claim(folder: Path) -> tuple[Path, int]:
    """Return a new process folder and the descriptor that holds its lock until the process ends."""
    while True:
        path = folder / uuid.uuid4().hex
        (path / "pins").mkdir(parents=True)
        handle = os.open(path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if (path / "lock").exists():
            return path, handle
        os.close(handle)  # swept between the open and the lock


def _sweep_processes(folder: Path) -> None:
    """Remove the folders of processes that are gone."""
    for path in folder.glob("*"):
        try:
            handle = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            # Between mkdir and open of a starting process; older ones are debris.
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > 3600:
                    shutil.rmtree(path, ignore_errors=True)
            continue
        except PermissionError:
            continue  # another user's
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass  # it lives
        finally:
            os.close(handle)


def _sweep_downloads(folder: Path) -> None:
    """Remove what killed downloads left."""
    for path in folder.glob("??/*.part"):
        with contextlib.suppress(OSError):
            handle = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(handle)


def _is_whole(path: Path, sha256: str, size: int) -> bool:
    """Return whether the file is verified; without this boot's stamp it is hashed, and stamped if right."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    if status.st_size != size:
        return False
    if int(status.st_mtime) != _stamp():
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                return False
    os.utime(path, (time.time(), _stamp()))
    return True


def _pin(path: Path, pin: Path, sha256: str, size: int) -> bool:
    """Link the cached `path` as `pin`; False where it is absent or was written to."""
    try:
        os.link(path, pin)
    except FileNotFoundError:
        return False
    except FileExistsError:
        pass
    if _is_whole(pin, sha256, size):
        return True
    pin.unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    return False


def _bring(path: Path, download: Callable[[Path], None]) -> None:
    temporary = path.with_name(f"{path.name}.part")
    temporary.unlink(missing_ok=True)  # left by a killed download: we hold its lock
    try:
        download(temporary)
        _seal(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _seal(source: Path, target: Path) -> None:
    """Give the verified file `source` its name."""
    os.chmod(source, 0o444)
    os.utime(source, (time.time(), _stamp()))
    os.replace(source, target)
