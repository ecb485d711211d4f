"""Where an exported model goes: a folder or a prefix of a bucket, which holds all of it or nothing.

A folder is written beside its place and renamed. A prefix has no rename: `config.json` or `model.gguf`,
without which nobody loads a model, is removed first and written last. Of two exports that find a
prefix empty, the one whose `yanmo.json` was there first goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from yanmo.common.errors import StorageError, UsageError, naming
from yanmo.common.plain_json import json_value
from yanmo.store.durable_files import flock, fsync_dir
from yanmo.store.s3.files import S3Folder
from yanmo.store.settings import StoreSettings

log = logging.getLogger(__name__)
RECORD = "yanmo.json"
"""What is in the folder, with digests: it marks a folder as an export that another may replace."""
LAST = ("config.json", "model.gguf")
"""Without one of them nobody loads a model."""
SCHEMA = "yanmo.export/1"


class Place(Protocol):
    """Where an export goes."""

    def check(self) -> None:
        """Refuse what is there, before any work.

        Raises:
            UsageError: something that is not to be replaced.
        """

    def staged(self) -> contextlib.AbstractContextManager[Path]:
        """Return an empty folder to write into, which is gone afterwards."""

    def publish(self, folder: Path) -> None:
        """Put what was written there in its place, whole."""


def place_of(where: str, settings: StoreSettings, *, overwrite: bool) -> Place:
    """Return the place at an address.

    Raises:
        UsageError: no such kind of address.
    """
    scheme = urlsplit(where).scheme if "://" in where else ""
    if scheme == "s3":
        return _Prefix(where, settings, overwrite=overwrite)
    if scheme not in ("", "file"):
        raise UsageError(f"FOLDER {where[:100]}: expected a folder or s3://bucket/prefix")
    return _Folder(Path(urlsplit(where).path if scheme else where), overwrite=overwrite)


class _Folder:
    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self.path, self.overwrite = Path(os.path.realpath(path)), overwrite
        if not self.path.name:
            raise UsageError(f"FOLDER {path}: expected a folder to make")
        self._prefix = f".{self.path.name[:100]}.yanmo-export-"

    def check(self) -> None:
        if os.path.lexists(self.path) and not self.path.is_dir():
            raise UsageError(f"{self.path}: is a file; give another folder")
        names = sorted(path.name for path in self.path.iterdir()) if self.path.is_dir() else []
        if names:
            record = self.path / RECORD
            data = record.read_bytes() if record.is_file() else b""
            _check_replaceable(str(self.path), names, data, "an exported model", overwrite=self.overwrite)

    @contextlib.contextmanager
    def staged(self) -> Iterator[Path]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._clear_leftovers()
        folder = self.path.with_name(f"{self._prefix}{uuid.uuid4().hex}")
        folder.mkdir()
        lock = os.open(folder, os.O_RDONLY)
        flock(lock, fcntl.LOCK_EX)  # while this process lives nobody takes it for a leftover
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)

    def _clear_leftovers(self) -> None:
        """Remove what exports that were killed left beside the place: nobody holds its lock any more."""
        for path in self.path.parent.iterdir():
            if not path.name.startswith(self._prefix):
                continue
            with contextlib.suppress(OSError):
                lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
                    log.info("removed %s, which an export that was killed had left", path)
                finally:
                    os.close(lock)

    def publish(self, folder: Path) -> None:
        for path in folder.iterdir():
            path.chmod(_readable())  # safetensors lets nobody else read what it writes
            with path.open("rb") as file, naming(path):
                os.fsync(file.fileno())
        fsync_dir(folder)
        self.check()  # somebody else may have been faster
        if self.path.is_dir() and any(self.path.iterdir()):
            former = folder.with_name(f"{self._prefix}former-{uuid.uuid4().hex}")
            self.path.rename(former)
            folder.rename(self.path)
            shutil.rmtree(former)
        else:
            folder.rename(self.path)
        fsync_dir(self.path.parent)


def _readable() -> int:
    """Return the mode of a new file, by the umask, which can only be read by setting it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return 0o666 & ~umask


class _Prefix:
    def __init__(self, uri: str, settings: StoreSettings, *, overwrite: bool) -> None:
        self.uri, self.overwrite = uri.rstrip("/"), overwrite
        self._remote = S3Folder(self.uri, settings.endpoint)
        self._scratch = settings.scratch_folder
        self._held: list[str] = []

    def check(self) -> None:
        self._held = self._remote.names()
        if not self._held:
            return
        record = self._remote.read(RECORD) if RECORD in self._held else b""
        what = (
            "an exported model" if {*LAST} & {*self._held} else "a part of an export that runs or was killed"
        )
        _check_replaceable(self.uri, self._held, record, what, overwrite=self.overwrite)

    @contextlib.contextmanager
    def staged(self) -> Iterator[Path]:
        self._scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="export-", dir=self._scratch) as folder:
            yield Path(folder)

    def publish(self, folder: Path) -> None:
        self.check()  # somebody else may have been faster
        names = sorted(path.name for path in folder.iterdir())
        self._remote.delete(name for name in self._held if name in LAST or name not in names)
        # The record first: it says of what a kill leaves that an export made it.
        if self._held:
            self._remote.put(RECORD, folder / RECORD)
        elif not self._remote.create(RECORD, folder / RECORD):
            raise StorageError(
                f"{self.uri}: another export writes there too; run this again when it has ended"
            )
        names.remove(RECORD)
        try:
            for name in sorted(names, key=lambda name: name in LAST):
                self._remote.put(name, folder / name)
        except BaseException:
            self._clear(names, (folder / RECORD).read_bytes())
            raise

    def _clear(self, names: list[str], record: bytes) -> None:
        """Leave nothing of an export that failed; what another one writes meanwhile is left alone."""
        with contextlib.suppress(OSError):
            if self._remote.read(RECORD) == record:
                self._remote.delete([*names, RECORD])


def record_of(folder: Path, facts: dict[str, Any]) -> str:
    """Return the text of `yanmo.json` for the files in a folder."""
    files = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file, naming(path):
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        files[path.name] = {"bytes": path.stat().st_size, "sha256": digest}
    return json.dumps({"schema": SCHEMA, **facts, "files": files}, ensure_ascii=False, indent=1) + "\n"


def _check_replaceable(where: str, names: list[str], record: bytes, what: str, *, overwrite: bool) -> None:
    try:
        value = json_value(record)
        known = {RECORD, *value["files"]} if value["schema"] == SCHEMA else set()
    except (ValueError, KeyError, TypeError):
        known = set()
    others = [name for name in names if name not in known]
    if others:
        raise UsageError(
            f"{where}: holds {others[0][:100]}, which no export of a model has made, and is not replaced; "
            "give another folder"
        )
    if not overwrite:
        raise UsageError(f"{where}: holds {what}; --overwrite replaces it")
