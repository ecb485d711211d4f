"""Which raw files there are, and the digests that stand for them in the key.

A file's sha256 is remembered in the store by (URI, size, modification time), so that a second run over a
terabyte does not read it again to learn that nothing changed.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yanmo.common.errors import DataError, UsageError
from yanmo.common.store.manifest import digest, file_sha256
from yanmo.common.store.objects import AlreadyExists, Changed, ObjectStore

log = logging.getLogger(__name__)

FORMS = ("jsonl", "parquet", "txt")
COMPRESSIONS = ("gz", "zst", "xz")
_NAME = re.compile(r".*\.(?:(parquet)|(jsonl|txt)(?:\.(gz|zst|xz))?)\Z", re.IGNORECASE | re.DOTALL)
_EXPECTED = "expected .jsonl, .parquet or .txt, and .jsonl or .txt may end in .gz, .zst or .xz"


@dataclass(frozen=True, kw_only=True)
class Source:
    """One raw file as it was when its digest was taken."""

    path: Path
    form: str
    """One of FORMS."""
    compression: str
    """One of COMPRESSIONS, or empty."""
    bytes: int
    mtime_ns: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name without its folder; bytes that are not UTF-8 become `?`."""
        return self.path.name.encode(errors="replace").decode()

    def check_unchanged(self) -> None:
        """Raise `DataError` when the file is no longer the one that was digested."""
        now = _stat(self.path)
        if (now.st_size, now.st_mtime_ns) != (self.bytes, self.mtime_ns):
            raise DataError(f"{self.path}: changed while it was read; run again when it is at rest")


def form_of(path: Path) -> tuple[str, str] | None:
    """The form and compression that a file's name tells, or None for a name that is not ours."""
    found = _NAME.match(path.name)
    if not found:
        return None
    return (found[1] or found[2]).lower(), (found[3] or "").lower()


def find_files(sources: str) -> list[Path]:
    """The files that `--sources` names, sorted, each once.

    Raises:
        DataError: an entry names nothing, or nothing that can be read as text.
        UsageError: a scheme that no backend reads.
    """
    found: dict[Path, Path] = {}
    for entry in _entries(sources):
        for path in _files_of(entry):
            found.setdefault(path.resolve(), path)
    return sorted(found.values())


def _entries(sources: str) -> list[str]:
    whole = sources.strip()
    if Path(whole).exists():  # a name with spaces or commas in it
        return [whole]
    return [entry for entry in re.split(r"[,\s]+", whole) if entry]


def _files_of(entry: str) -> list[Path]:
    entry = entry.removeprefix("file://")
    if "://" in entry:
        raise UsageError(f"--sources {entry}: expected a path on this machine or file:///path")
    path = Path(entry).expanduser()
    if path.is_dir():
        files = [f for f in sorted(path.rglob("*")) if _is_text(f.relative_to(path)) and f.is_file()]
        if not files:
            raise DataError(f"--sources {entry}: no such files in this folder; {_EXPECTED}")
        return files
    if path.is_file():
        if form_of(path) is None:
            raise DataError(f"--sources {entry}: cannot tell its form from its name; {_EXPECTED}")
        return [path]
    matches = [Path(m) for m in sorted(glob.glob(str(path), recursive=True))]
    files = [m for m in matches if m.is_file() and form_of(m)]
    if not files:
        what = "matches nothing that can be read" if glob.has_magic(entry) else "no such file or folder"
        raise DataError(f"--sources {entry}: {what}; {_EXPECTED}")
    return files


def _is_text(relative: Path) -> bool:
    return form_of(relative) is not None and not any(part.startswith(".") for part in relative.parts)


def digest_files(store: ObjectStore, files: Iterable[Path]) -> list[Source]:
    """Every file with its sha256, from the store's memory where size and time are unchanged.

    Raises:
        DataError: a file is empty or cannot be read.
    """
    return [_digest_file(store, path) for path in files]


def _digest_file(store: ObjectStore, path: Path) -> Source:
    stat = _stat(path)
    if not stat.st_size:
        raise DataError(f"{path}: is empty; remove it from --sources or fill it")
    form = form_of(path)
    assert form is not None, path
    uri = path.resolve().as_uri()
    seen = {"uri": uri, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    name = f"sources/{hashlib.sha256(uri.encode()).hexdigest()}.json"
    old, version = _remembered(store, name)
    sha256 = old.get("sha256") if {k: old.get(k) for k in seen} == seen else None
    if not isinstance(sha256, str):
        sha256 = _hash(path)
        _remember(store, name, version, {**seen, "sha256": sha256})
    source = Source(
        path=path,
        form=form[0],
        compression=form[1],
        bytes=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        sha256=sha256,
    )
    source.check_unchanged()
    return source


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def _hash(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def _remembered(store: ObjectStore, name: str) -> tuple[dict[str, Any], str]:
    try:
        data, version = store.read(name)
    except FileNotFoundError:
        return {}, ""
    try:
        value = json.loads(data)
    except ValueError:
        value = {}  # damaged: it is only a memory
    return (value if isinstance(value, dict) else {}), version


def _remember(store: ObjectStore, name: str, version: str, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode()
    try:
        if version:
            store.replace(name, data, version)
        else:
            store.create(name, data)
    except (AlreadyExists, Changed):
        log.debug("another run remembered %s first", value["uri"])


def sources_input(sources: list[Source]) -> dict[str, Any]:
    """The raw files as an input of a key: names and bytes count, folders and order do not."""
    files = sorted([s.name, s.sha256, s.bytes] for s in sources)
    return {
        "content_digest": digest(files),
        "uri": ", ".join(s.path.resolve().as_uri() for s in sources[:20]),
        "files": [{"name": n, "sha256": sha, "bytes": size} for n, sha, size in files],
    }


def iterate_excluded(path: Path) -> Iterator[str]:
    """The document ids in a take-down file; `#` begins a comment.

    Raises:
        DataError: it cannot be read, or a line is not an id.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--exclude {path}: cannot be read: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        found = line.partition("#")[0].strip()
        if found and not re.fullmatch(r"[0-9a-f]{64}", found):
            raise DataError(
                f"--exclude {path}:{number}: expected an id of 64 hexadecimal digits, got {found!r}"
            )
        if found:
            yield found
