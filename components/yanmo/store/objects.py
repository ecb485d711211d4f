"""Objects of a store: what every backend must do, and how often this process has asked for what.

Everything above this file (manifests, leases, pointers) needs just two promises: an object that
becomes visible is whole, and `create` / `replace` are conditional (S3's If-None-Match and If-Match).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from yanmo.common.errors import DataError, StorageError

_PART = r"(?!\.+(?:/|\Z))[A-Za-z0-9._=-]{1,200}"  # not only dots
_NAME = re.compile(rf"{_PART}(?:/{_PART})*\Z")
_MOST_OF_A_PART = 100
_TRIES = 30
MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
"""The largest object that `read` returns; manifests of 100,000 files have about 18 MB."""


class AlreadyExists(StorageError):
    """`create` found an object of that name."""


class Changed(StorageError):
    """`replace` found another version than the caller had read."""


class NotSupportedHere(StorageError):
    """The store does not know this kind of request."""


class Damaged(DataError):
    """An object is missing, short or changed since its manifest was written."""


@dataclass(frozen=True)
class ObjectInfo:
    """An object as the store lists it."""

    name: str
    bytes: int
    modified: float
    """Unix seconds by the store's own clock; compare with `ObjectStore.clock()`."""


@dataclass(frozen=True)
class Wanted:
    """An object as a manifest describes it."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Written:
    """What was published: counted and hashed from the bytes that went to the store."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Leftover:
    """Something of a killed writer that is no object: a temporary file, an unfinished upload."""

    name: str
    what: str
    bytes: int
    """0 where the store does not say."""
    modified: float
    remove: Callable[[], None]


class ObjectStore(Protocol):
    """A flat space of named objects. Names are relative, `/`-separated, from an allow-list.

    Every method may raise StorageError (the store cannot be reached now, exit code 75).
    """

    uri: str
    is_shared: bool
    """Whether its paths are the same for every machine that sees it."""

    def read(self, name: str) -> tuple[bytes, str]:
        """Return the object's bytes and its version (ETag), for objects of at most `MAX_DOCUMENT_BYTES`.

        Raises:
            FileNotFoundError: there is none.
            DataError: it is larger.
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

    def stat(self, name: str) -> ObjectInfo | None:
        """Return the object's size and age, or None where there is none."""

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        """Return bytes of each object, None where there is none; many at once."""

    def clock(self) -> float:
        """Return now, in Unix seconds, by the clock that stamps `ObjectInfo.modified`."""

    def writable(self, prefix: str) -> Path:
        """Return a local folder whose files `publish` puts under `prefix`; made when absent."""

    def publish(self, prefix: str, names: Sequence[str]) -> list[Written]:
        """Make files of `writable(prefix)` durable as the objects `prefix/name`, hashed as they pass."""

    def link(self, pairs: Sequence[tuple[Wanted, str]]) -> None:
        """Give each object a second name, without its bytes passing through this machine where that can be.

        Raises:
            Damaged: an object is missing or of another size (on a folder: or changed).
        """

    def discard(self, prefix: str, names: Sequence[str]) -> None:
        """Remove `writable(prefix)` and what was published from it; no error where there is nothing."""

    def settle(self, prefix: str) -> None:
        """Everything below `prefix` is published and committed: local copies may go."""

    def new_try(self, prefix: str) -> Path:
        """Return a new local folder for files of the attempt `prefix` that others may make as well."""

    def publish_try(self, prefix: str, folder: Path, names: Sequence[str]) -> list[Written]:
        """`publish` from the folder of a try: each file gets its place whole, whoever comes last."""

    def name_of(self, path: Path) -> str | None:
        """Return the object that a path of `writable` or `fetch` stands for; None for other files."""

    def place(self, wanted: Wanted) -> Path:
        """Return the path that `fetch` will give."""

    def wanted_at(self, path: Path) -> Wanted | None:
        """Return what `fetch` gave this path for; None on a store that is a folder, as all see it."""

    def fetch(self, wanted: Sequence[Wanted]) -> list[Path]:
        """Local files with the objects' bytes, verified; they may be memory-mapped, not written.

        Raises:
            DataError: an object is missing, short or changed; says which, what was expected and found.
        """

    def digest(self, name: str) -> Written | None:
        """Return bytes and sha256 of the object as stored now, past any cache; None where there is none."""

    def release(self, paths: Sequence[Path]) -> None:
        """The caller needs these fetched files no longer: a cache may drop them."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects below the folder `prefix` ("" for the whole store), sorted by name. Slow in a large
        store: for tools, and for a key that is not given in full."""

    def delete(self, name: str) -> None:
        """Remove the object; no error where there is none."""

    def leftovers(self) -> Iterator[Leftover]:
        """Yield what killed writers left that `list` does not show."""


def amend(store: ObjectStore, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
    """Write what `change` makes of the object as it is, by compare-and-swap: no other writer's word is lost.

    Args:
        change: given the bytes, None where there is no object; may be called again, where another writer was
            faster. Nothing is written where it gives back what it was given, or None; the last of two that
            look at nothing wins.

    Raises:
        StorageError: it changed under every try.
    """
    for _ in range(_TRIES):
        data, version = None, ""
        with contextlib.suppress(FileNotFoundError):
            data, version = store.read(name)
        changed = change(data)
        if changed is None or changed == data:
            return
        try:
            store.create(name, changed) if data is None else store.replace(name, changed, version)
            return
        except (Changed, AlreadyExists, FileNotFoundError):
            continue
    raise StorageError(f"{store.uri}/{name}: changed under {_TRIES} tries to change it; try again")


def is_name(name: str) -> bool:
    """Return whether `name` can be an object's: each part from the allow-list, at most 900 characters."""
    return len(name) <= 900 and _NAME.match(name) is not None


def check_name(name: str) -> str:
    """`name`, when every part of it comes from the allow-list.

    Raises:
        DataError: an empty part, `..`, a control character, or a part over 200 characters. Names come
            from manifests and references, so a bad one is bad data.
    """
    if not is_name(name):
        shown = name if len(name) <= 100 else name[:100] + "..."
        raise DataError(
            f"refused object name {shown!r}: expected parts of 1 to 200 letters, "
            "digits or . _ = -, joined by /"
        )
    return name


def as_part(text: str) -> str:
    """Return a text, such as a run's id, as one part of a name: itself where that can be, or unique."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in text)[:_MOST_OF_A_PART]
    if safe == text and safe:
        return safe
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{safe[: _MOST_OF_A_PART - 9]}-{digest}"


def check_size(where: str, wanted: Wanted, found: int | None) -> None:
    """Raise `Damaged` unless `found` (None: no object) is the size in the manifest."""
    if found != wanted.bytes:
        what = "no such file" if found is None else f"{found} bytes"
        raise Damaged(f"{where}: expected {wanted.bytes} bytes, found {what}")


def check_sha256(where: str, wanted: Wanted, found: str) -> None:
    """Raise `Damaged` unless `found` is the sha256 in the manifest."""
    if found != wanted.sha256:
        raise Damaged(
            f"{where}: changed since it was committed: expected sha256 {wanted.sha256[:16]}..., "
            f"found {found[:16]}..."
        )


RequestKind = Literal["read", "write", "stat", "list", "copy", "delete"]
REQUEST_KINDS: tuple[RequestKind, ...] = ("read", "write", "stat", "list", "copy", "delete")
"""Those that are counted for /metrics: of this process; an operation on a folder counts as a request."""


@dataclass
class Traffic:
    """What this process has asked of its stores, of one kind of request."""

    requests: int = 0
    """Tries included."""
    retries: int = 0
    """Tries that failed and may pass: made again, or given up."""


_lock = threading.Lock()
_traffic = {kind: Traffic() for kind in REQUEST_KINDS}


def count_request(kind: RequestKind) -> None:
    """Count a try of a request."""
    with _lock:
        _traffic[kind].requests += 1


def count_failed(kind: RequestKind) -> None:
    """Count a try that failed in a way that may pass."""
    with _lock:
        _traffic[kind].retries += 1


def traffic() -> dict[RequestKind, Traffic]:
    """Return what was counted until now, by kind."""
    with _lock:
        return {kind: replace(counted) for kind, counted in _traffic.items()}
