"""Raw files in a bucket, which are no objects of a store: read only, any key, streamed in ranges.

They have no names from an allow-list, and no manifests that say what they hold. A change of one that is read
is noticed.
"""

from __future__ import annotations

import functools
import io
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urlsplit

from yanmo.common.errors import DataError, StorageError, UsageError
from yanmo.store.s3.bucket import Bucket
from yanmo.store.s3.client import bucket_problem
from yanmo.store.s3.retry import OutOfRange, PreconditionFailed

_BLOCK_BYTES = 8 << 20
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class S3File:
    """One object as the bucket lists it."""

    uri: str
    """Percent-encoded, so that any key is one URI."""
    bytes: int
    etag: str


def list_s3(entry: str, leave_out: Callable[[str, str], None] = lambda uri, why: None) -> list[S3File]:
    """Return the object of that URI, or all below it as a folder, or matching a glob (`*`, `?`, `**`).

    Objects with a hidden name or below a hidden "folder" are left out, and so are empty markers of folders:
    `诗词/` or `诗词`, of no bytes, beside `诗词/a.txt`.

    Args:
        leave_out: called with the address of what is left out, and why.

    Raises:
        DataError: there is nothing of that name.
        StorageError, EnvironmentFault, UsageError: the server, the credentials, the bucket.
    """
    bucket, key = _split(entry)
    if not _MAGIC.search(key):
        single = bucket.find(key) if key and not key.endswith("/") else None
        folder = key.rstrip("/")
        found = [single] if single and single.bytes else []
        if not found:
            found = list(bucket.below(f"{folder}/" if folder else "", leave_out))
        if not found and single:
            found = [single]
    else:
        pattern = re.compile(_translate(key))
        literal = _MAGIC.split(key)[0]
        found = [f for f in bucket.below(literal, leave_out) if pattern.fullmatch(bucket.key(f))]
    if not found:
        what = "matches nothing" if _MAGIC.search(key) else "no such object or prefix"
        raise DataError(f"--sources {entry}: {what}; look at the address")
    return found


def stat_s3(uri: str) -> S3File:
    """Return the object as it is now.

    Raises:
        DataError: it is gone.
    """
    bucket, key = _split(uri)
    found = bucket.find(key)
    if found is None:
        raise DataError(f"{uri}: no such object; look at the address")
    return found


def open_s3(uri: str, at_a_time: int = _BLOCK_BYTES) -> BinaryIO:
    """Return a binary stream of the object's bytes that can seek, of which `at_a_time` are in memory.

    Raises:
        DataError: it is gone, now or while it is read.
    """
    bucket, key = _split(uri)
    return io.BufferedReader(_Stream(bucket, key, stat_s3(uri)), at_a_time)


class _Bucket(Bucket):
    """A bucket on the server that the environment names, whose files are called by their URIs."""

    def __init__(self, scheme: str, name: str) -> None:
        super().__init__(scheme, name)
        self.scheme = scheme

    def uri(self, key: str) -> str:
        return f"{self.scheme}://{self.name}/{quote(key, safe='/')}"

    def key(self, file: S3File) -> str:
        return _split(file.uri)[1]

    def find(self, key: str) -> S3File | None:
        found = self.stat(key, self.uri(key))
        return found and S3File(self.uri(key), found.size, str(found.etag))

    def below(self, prefix: str, leave_out: Callable[[str, str], None]) -> Iterator[S3File]:
        for found in self.listed(prefix, self.uri(prefix)):
            key = str(found.object_name)
            parts = key[len(prefix) :].split("/")
            hidden = next((i for i, part in enumerate(parts) if part.startswith(".")), None)
            if hidden is not None:
                leave_out(self.uri(prefix + "/".join(parts[: hidden + 1])), "hidden")
            elif not key.endswith("/"):
                yield S3File(self.uri(key), found.size, str(found.etag))
            elif found.size:
                leave_out(self.uri(key), "its key ends as a folder's")


@functools.lru_cache(maxsize=32)
def _bucket(scheme: str, name: str, pid: int) -> _Bucket:
    """One client per bucket and process: connections must not be shared with a forked child."""
    return _Bucket(scheme, name)


def _split(uri: str) -> tuple[_Bucket, str]:
    parts = urlsplit(uri.replace("?", "%3F").replace("#", "%23"))
    if not parts.netloc:
        raise UsageError(f"{uri}: expected s3://bucket/key, s3://bucket/prefix or a glob of keys")
    if problem := bucket_problem(parts.netloc):
        raise UsageError(f"{uri}: {problem}")
    return _bucket(parts.scheme, parts.netloc, os.getpid()), unquote(parts.path.lstrip("/"))


def _translate(pattern: str) -> str:
    """Return a glob of keys as a regular expression: `*` and `?` stay within a folder, `**` does not."""
    result, rest = "", pattern
    while rest:
        for magic, expression in (("**/", "(?:[^.][^/]*/)*"), ("**", ".*"), ("*", "[^/]*"), ("?", "[^/]")):
            if rest.startswith(magic):
                result, rest = result + expression, rest[len(magic) :]
                break
        else:
            character_set = re.match(r"\[(!?)([^]]+)\]", rest)
            if character_set:
                inside = character_set[2].replace("\\", "\\\\").replace("^", "\\^")
                result += f"[{'^' if character_set[1] else ''}{inside}]"
                rest = rest[character_set.end() :]
            else:
                result, rest = result + re.escape(rest[0]), rest[1:]
    return result


class _Stream(io.RawIOBase):
    """Ranged reads of one object, each on condition that it is still the same."""

    def __init__(self, bucket: _Bucket, key: str, file: S3File) -> None:
        self._bucket, self._key, self._file = bucket, key, file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.bytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._file.bytes - self._at)
        if length <= 0:
            return 0
        buffer[:length] = self._get(self._at, length)
        self._at += length
        return length

    def readall(self) -> bytes:
        """Return all that is left, block by block: the inherited one would send a request for each 8 KiB."""
        blocks = []
        while (length := min(_BLOCK_BYTES, self._file.bytes - self._at)) > 0:
            blocks.append(self._get(self._at, length))
            self._at += length
        return b"".join(blocks)

    def _get(self, offset: int, length: int) -> bytes:
        try:
            found = self._bucket.get(
                self._key, self._file.uri, offset=offset, length=length, etag=self._file.etag
            )
            if len(found.data) < length:  # of a server that looks at no If-Match
                raise OutOfRange(self._file.uri)
            return found.data
        except (FileNotFoundError, PreconditionFailed, OutOfRange):
            raise StorageError(
                f"{self._file.uri}: changed while it was read; run the same command again when nothing "
                "writes to it"
            ) from None
