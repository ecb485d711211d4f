"""Where an exported model goes: a folder, which holds all of it or nothing."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yanmo.common.errors import UsageError, naming
from yanmo.common.plain_json import json_value
from yanmo.store.durable_files import fsync_dir

log = logging.getLogger(__name__)
RECORD = "yanmo.json"
"""What is in the folder, with digests: it marks a folder as an export that another may replace."""
SCHEMA = "yanmo.export/1"


class Place:
    """The folder that an export makes: written beside its place and renamed."""

    def __init__(self, folder: str, *, overwrite: bool) -> None:
        if "://" in folder or not Path(os.path.realpath(folder)).name:
            raise UsageError(f"FOLDER {folder[:100]}: expected a folder to make")
        self.path, self.overwrite = Path(os.path.realpath(folder)), overwrite
        self._prefix = f".{self.path.name[:100]}.yanmo-export-"

    def check(self) -> None:
        """Refuse what is there, before any work.

        Raises:
            UsageError: something that is not to be replaced.
        """
        if os.path.lexists(self.path) and not self.path.is_dir():
            raise UsageError(f"{self.path}: is a file; give another folder")
        names = sorted(path.name for path in self.path.iterdir()) if self.path.is_dir() else []
        if names:
            record = self.path / RECORD
            data = record.read_bytes() if record.is_file() else b""
            _check_replaceable(str(self.path), names, data, overwrite=self.overwrite)

    @contextlib.contextmanager
    def staged(self) -> Iterator[Path]:
        """Yield an empty folder to write into, which is gone afterwards."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._clear_leftovers()
        folder = self.path.with_name(f"{self._prefix}{uuid.uuid4().hex}")
        folder.mkdir()
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)  # while this process lives nobody takes it for a leftover
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
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
                    log.info("removed %s, which an export that was killed had left", path)
                finally:
                    os.close(lock)

    def publish(self, folder: Path) -> None:
        """Put what was written there in its place, whole."""
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


def record_of(folder: Path, facts: dict[str, Any]) -> str:
    """Return the text of `yanmo.json` for the files in a folder."""
    files = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file, naming(path):
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        files[path.name] = {"bytes": path.stat().st_size, "sha256": digest}
    return json.dumps({"schema": SCHEMA, **facts, "files": files}, ensure_ascii=False, indent=1) + "\n"


def _check_replaceable(where: str, names: list[str], record: bytes, *, overwrite: bool) -> None:
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
        raise UsageError(f"{where}: holds an exported model; --overwrite replaces it")
