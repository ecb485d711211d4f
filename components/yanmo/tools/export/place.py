"""Where an exported model goes: a folder, which holds all of it or nothing."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yanmo.common.errors import UsageError, naming
from yanmo.common.given_file import json_value
from yanmo.store.durable_files import fsync_dir

RECORD = "yanmo.json"
"""What is in the folder, with digests: it marks a folder as an export that another may replace."""
SCHEMA = "yanmo.export/1"


class Place:
    """The folder that an export makes: written beside its place and renamed."""

    def __init__(self, folder: str, *, overwrite: bool) -> None:
        if "://" in folder or not Path(os.path.realpath(folder)).name:
            raise UsageError(f"FOLDER {folder[:100]}: expected a folder to make")
        self.path, self.overwrite = Path(os.path.realpath(folder)), overwrite

    def check(self) -> None:
        """Refuse what is there, before any work.

        Raises:
            UsageError: something that is not to be replaced.
        """
        if os.path.lexists(self.path) and not self.path.is_dir():
            raise UsageError(f"{self.path}: is a file; give another folder")
        names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
        if others := sorted(names - _exported(self.path / RECORD)):
            raise UsageError(
                f"{self.path}: holds {others[0][:100]}, which no export of a model has made, and is not "
                "replaced; give another folder"
            )
        if names and not self.overwrite:
            raise UsageError(f"{self.path}: holds an exported model: give --overwrite to replace it")

    @contextlib.contextmanager
    def staged(self) -> Iterator[Path]:
        """Yield an empty folder to write into, gone afterwards; what a killed export left is cleared.

        Raises:
            UsageError: another process exports to the same place.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f".{self.path.name[:100]}.yanmo-export")
        beside.mkdir(exist_ok=True)
        lock = os.open(beside, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise UsageError(f"{self.path}: another export is writing it; wait for its end") from None
        for name in ("new", "former"):
            shutil.rmtree(beside / name, ignore_errors=True)
        try:
            (beside / "new").mkdir()
            yield beside / "new"
        finally:
            shutil.rmtree(beside, ignore_errors=True)
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
            self.path.rename(folder.with_name("former"))
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


def _exported(record: Path) -> set[str]:
    """Return the names of the files that an export made; none where its record is no such thing."""
    try:
        value = json_value(record.read_bytes())
        return {RECORD, *value["files"]} if value["schema"] == SCHEMA else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()
