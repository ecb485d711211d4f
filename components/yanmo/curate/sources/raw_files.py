"""Access to raw files: the only interface between `curate` and file systems or object stores.

A place is read through two functions: `list_files` (the files of a path, folder, prefix or glob, with
size and version) and `open_file` (a seekable binary stream). Everything else in the stage uses URIs and
streams.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote

from yanmo.common.errors import DataError, StorageError, UsageError, in_words
from yanmo.engine.shared_files import check_seen_here

if TYPE_CHECKING:
    from yanmo.store.s3.files import S3File

_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, kw_only=True)
class RawFile:
    """One raw file of a listing."""

    uri: str
    bytes: int
    version: str
    """Changes with the file: modification time in nanoseconds, or an ETag."""
    same_as: str = ""
    """The file that its URI leads to (target of a symbolic link), so that no file is read twice."""

    @property
    def name(self) -> str:
        """The last part of its path, readable."""
        return readable(unquote(self.uri.rpartition("/")[2], errors="surrogateescape"))


def shown(uri: str) -> str:
    """Return a file's name in messages: its path, readable, or its URI where it has none."""
    return readable(str(local_path(uri))) if uri.startswith("file://") else uri


def readable(path: str) -> str:
    """Return a path whose parts may be in GB18030, as out of archives; bytes that are neither become `?`."""
    return "/".join(map(_readable, path.split("/")))


def _readable(name: str) -> str:
    data = name.encode(errors="surrogateescape")
    for encoding in ("utf-8", "gb18030"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode(errors="replace").replace("\ufffd", "?")


def below(place: str) -> Callable[[str], str]:
    """Gives a file's path below the place that named it, by its URI: readable, without the place's folders.

    The root of a glob is the folder before its first pattern; of a single file only the name is left.
    """
    if "://" in place and not place.startswith("file://"):
        literal = _MAGIC.split(unquote(place))[0]
        folder = literal.rpartition("/")[0] if literal != unquote(place) else literal.rstrip("/")
    else:
        path = local_path(place).absolute()
        folder = next(p for p in (path, *path.parents) if p.is_dir()).as_uri().removesuffix("/")

    def path_of(uri: str) -> str:
        inside = uri if uri.startswith("file://") else unquote(uri)
        start = f"{folder}/" if inside.startswith(f"{folder}/") else f"{inside.rpartition('/')[0]}/"
        return readable(unquote(inside.removeprefix(start), errors="surrogateescape"))

    return path_of


@dataclass(frozen=True, kw_only=True)
class Listing:
    """How a place is listed."""

    leave_out: Callable[[str, str], None] = lambda path, why: None
    """Called with the path of what is not listed, and why."""
    follow_links: bool = False
    """Whether symbolic links may lead outside of the folder."""


def list_files(entry: str, how: Listing = Listing()) -> list[RawFile]:
    """Return the files that a path or URI names, sorted by URI: one, or all of a folder or glob.

    Hidden files below a folder are left out.

    Raises:
        DataError: there is nothing of that name, or a link leads outside of the folder.
        UsageError: a scheme that nothing reads.
    """
    if _is_s3(entry):
        from yanmo.store.s3.files import list_s3  # imported late, here and below: local files need no client

        return sorted(map(_raw, list_s3(entry, how.leave_out)), key=lambda f: f.uri)
    return sorted(_list_local(entry, how), key=lambda f: f.uri)


def stat_file(uri: str) -> RawFile:
    """Return the file in its present state.

    Raises:
        DataError: it is gone or cannot be read.
    """
    if _is_s3(uri):
        from yanmo.store.s3.files import stat_s3

        return _raw(stat_s3(uri))
    return _stat_local(uri)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Raise `DataError` where the system cannot read a file.

    Args:
        name: the file's in messages.
    """
    try:
        yield
    except StorageError:
        raise  # the server is away: try again later
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {in_words(error)}; look at the path") from error


def check_seen(uri: str) -> None:
    """Raise `EnvironmentFault` where a worker of a cluster does not see a file that its driver sees."""
    if not _is_s3(uri):
        check_seen_here(local_path(uri))


def open_file(uri: str, at_a_time: int = 8 << 20) -> BinaryIO:
    """Return a binary stream of the file's bytes that can seek.

    Args:
        at_a_time: bytes that are asked of a server at least.

    Raises:
        DataError: it is gone or cannot be read.
    """
    if _is_s3(uri):
        from yanmo.store.s3.files import open_s3

        return open_s3(uri, at_a_time)
    with reading(shown(uri)):
        return local_path(uri).open("rb")


def _is_s3(entry: str) -> bool:
    scheme, separator, _ = entry.partition("://")
    if separator and scheme not in ("file", "s3", "minio"):
        raise UsageError(f"--sources {entry}: expected a path, file:///path or s3://bucket/prefix")
    return bool(separator) and scheme != "file"


def local_path(entry: str) -> Path:
    """Return the path of a `file://` URI or of a plain path."""
    if entry.startswith("file://"):
        return Path(unquote(entry.removeprefix("file://"), errors="surrogateescape"))
    return Path(entry).expanduser()


def _list_local(entry: str, how: Listing) -> Iterator[RawFile]:
    path = local_path(entry)
    if path.is_dir():
        yield from map(_stat_local, _below(path, path.resolve(), how, set()))
    elif path.is_file():
        yield _stat_local(str(path))
    else:
        matches = [m for m in glob.glob(str(path), recursive=True) if Path(m).is_file()]
        if not matches:
            what = "matches nothing" if glob.has_magic(entry) else "no such file or folder"
            raise DataError(f"--sources {readable(entry)}: {what}; look at the path")
        root = next(p for p in (path, *path.parents) if not glob.has_magic(str(p))).resolve()
        for match in matches:
            if _leads_outside(Path(match), root, how):
                raise _outside(Path(match))
            yield _stat_local(match)


def _below(folder: Path, root: Path, how: Listing, seen: set[Path]) -> Iterator[str]:
    """Yield the paths of the files below a folder; `seen` are real places of folders listed before.

    No link to a folder within `root` is followed: its files are read where they are.
    """
    seen.add(folder.resolve())
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        how.leave_out(readable(str(folder)), f"cannot be read: {in_words(error)}")
        return
    for entry in entries:
        path = Path(entry.path)
        if entry.name.startswith("."):
            how.leave_out(readable(entry.path), "hidden")
        elif not entry.is_symlink():
            if entry.is_dir():
                yield from _below(path, root, how, seen)
            elif entry.is_file():
                yield entry.path
            else:
                how.leave_out(readable(entry.path), "no file")
        elif not path.exists():
            how.leave_out(readable(entry.path), "a link to nothing")
        elif _leads_outside(path, root, how):
            raise _outside(path)
        elif path.is_file():
            yield entry.path
        elif path.resolve().is_relative_to(root) or path.resolve() in seen:
            how.leave_out(readable(entry.path), "a link to another folder of the same place")
        else:
            yield from _below(path, root, how, seen)


def _leads_outside(path: Path, root: Path, how: Listing) -> bool:
    return not how.follow_links and not path.resolve().is_relative_to(root)


def _outside(path: Path) -> DataError:
    return DataError(
        f"{readable(str(path))}: leads to {readable(str(path.resolve()))}, outside of the folder that was "
        "given: --follow-links true reads it; or take the link out"
    )


def _stat_local(entry: str) -> RawFile:
    path = local_path(entry)
    with reading(readable(str(path))):
        stat = path.stat()
    return RawFile(
        uri=path.absolute().as_uri(),
        bytes=stat.st_size,
        version=str(stat.st_mtime_ns),
        same_as=path.resolve().as_uri(),
    )


def _raw(found: S3File) -> RawFile:
    return RawFile(uri=found.uri, bytes=found.bytes, version=found.etag)
