"""The `s3://` backend: any S3 server through minio's client.

`create` and `replace` are PUTs with If-None-Match and If-Match. Some servers ignore these headers silently,
so the first write of a process probes them; a store that fails is refused.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from yanmo.common.errors import DataError, EnvironmentFault, StorageError, UsageError
from yanmo.store.objects import (
    MAX_DOCUMENT_BYTES,
    AlreadyExists,
    Changed,
    Leftover,
    NotSupportedHere,
    ObjectInfo,
    Wanted,
    Written,
    check_name,
    check_size,
    is_name,
)
from yanmo.store.s3.bucket import PART_BYTES, Bucket
from yanmo.store.s3.client import bucket_problem
from yanmo.store.s3.retry import PreconditionFailed
from yanmo.store.scratch import Scratch

log = logging.getLogger(__name__)
_UPLOADS = 1000


class S3Store:
    """Objects below a prefix of a bucket, with this machine's scratch for local files."""

    is_shared = False

    def __init__(self, uri: str, endpoint: str, scratch: Scratch) -> None:
        """Args:
        endpoint: http(s)://host[:port]; "" for what the environment or the mounted secret says, else AWS.
        """
        parts = urlsplit(uri)
        name, self.prefix = parts.netloc, parts.path.strip("/")
        if parts.query or parts.fragment:
            raise UsageError(f"--store {uri}: expected s3://bucket/prefix")
        if problem := bucket_problem(name):
            raise UsageError(f"--store {uri}: {problem}; expected s3://bucket/prefix")
        if self.prefix and not is_name(self.prefix):
            raise UsageError(
                f"--store {uri}: expected s3://bucket/prefix, a prefix of letters, digits, . _ = -"
            )
        self.uri = f"{parts.scheme}://{name}" + (f"/{self.prefix}" if self.prefix else "")
        self.bucket = Bucket(parts.scheme, name, endpoint)
        self.scratch = scratch
        self._conditional: bool | None = None
        self._quoted = True
        self._published: dict[str, list[tuple[str, Written]]] = {}
        self._fetched: dict[Path, Wanted] = {}

    def _key(self, name: str) -> str:
        check_name(name)
        return f"{self.prefix}/{name}" if self.prefix else name

    def _where(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def read(self, name: str) -> tuple[bytes, str]:
        found = self.bucket.get(self._key(name), self._where(name))
        if len(found.data) > MAX_DOCUMENT_BYTES:
            raise DataError(
                f"{self._where(name)}: expected a document of Yanmo, found more than {MAX_DOCUMENT_BYTES} "
                "bytes: restore it"
            )
        return found.data, found.etag.removeprefix("W/")

    def create(self, name: str, data: bytes) -> str:
        self._check_conditions()
        try:
            return self._put_if(name, data, {"If-None-Match": "*"})
        except PreconditionFailed:
            raise AlreadyExists(f"{self._where(name)}: already there") from None

    def replace(self, name: str, data: bytes, version: str) -> str:
        self._check_conditions()
        tag = version.strip('"')
        try:
            return self._put_if(name, data, {"If-Match": f'"{tag}"' if self._quoted else tag})
        except PreconditionFailed:
            raise Changed(f"{self._where(name)}: no longer has version {version}") from None

    def _put_if(self, name: str, data: bytes, condition: dict[str, str]) -> str:
        """Write under a condition; raises PreconditionFailed."""
        return self.bucket.put_if(self._key(name), data, self._where(name), _shown_as(name) | condition)

    def _check_conditions(self) -> None:
        """Refuse a server that does not keep conditional writes apart; found out at the first write.

        Raises:
            EnvironmentFault: two runs could both commit one key there.
        """
        if self._conditional is None:
            self._conditional = self._probe()
        if not self._conditional:
            raise EnvironmentFault(
                f"{self.uri}: the server ignores conditional writes (If-None-Match, If-Match), so that two "
                "runs could overwrite each other; use one that honours them: AWS, Ceph, MinIO, SeaweedFS "
                "from 3.97 (docs/explanation/store.md)"
            )

    def _probe(self) -> bool:
        """Writes that must be refused, and one that must not. Each process asks again: servers change.

        Ceph 16 compares If-Match with the bare tag and refuses the quoted one of RFC 9110, so both are tried.
        """
        name = f"probes/{uuid.uuid4().hex}"
        wrong = f'"{hashlib.md5(b"another", usedforsecurity=False).hexdigest()}"'
        try:
            version = self._put_if(name, b"1", {"If-None-Match": "*"})
            if self._takes(name, {"If-None-Match": "*"}) or self._takes(name, {"If-Match": wrong}):
                return False
            self._quoted = self._takes(name, {"If-Match": version})
            return self._quoted or self._takes(name, {"If-Match": version.strip('"')})
        except (PreconditionFailed, NotSupportedHere):
            return False  # it refuses to create what is not there, or does not know conditions at all
        finally:
            try:
                self.delete(name)
            except (StorageError, EnvironmentFault) as error:
                log.debug("left the probe %s behind: %s", name, error)

    def _takes(self, name: str, condition: dict[str, str]) -> bool:
        try:
            self._put_if(name, b"2", condition)
        except (PreconditionFailed, NotSupportedHere):
            return False
        return True

    def stat(self, name: str) -> ObjectInfo | None:
        found = self.bucket.stat(self._key(name), self._where(name))
        return None if found is None else _info(name, found)

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        found = self.bucket.each(self.stat, names)
        return [None if info is None else info.bytes for info in found]

    def clock(self) -> float:
        return time.time() + self.bucket.client.pool.clock_offset

    def writable(self, prefix: str) -> Path:
        """Below `runs/` the folder outlives the process: a run killed here goes on from it."""
        check_name(prefix)
        if prefix.startswith("runs/"):
            return self.scratch.kept_work(f"{hashlib.sha256(self.uri.encode()).hexdigest()[:16]}/{prefix}")
        return self.scratch.work(prefix)

    def publish(self, prefix: str, names: Sequence[str]) -> list[Written]:
        folder = self.writable(prefix)
        written = self.bucket.upload([(folder / name, self._key(f"{prefix}/{name}")) for name in names])
        self._published.setdefault(prefix, []).extend(zip(names, written, strict=True))
        return written

    def new_try(self, prefix: str) -> Path:
        return self.scratch.work(f"tries/{uuid.uuid4().hex}")

    def publish_try(self, prefix: str, folder: Path, names: Sequence[str]) -> list[Written]:
        return self.bucket.upload([(folder / name, self._key(f"{prefix}/{name}")) for name in names])

    def name_of(self, path: Path) -> str | None:
        return self.scratch.name_of(path)

    def place(self, wanted: Wanted) -> Path:
        return self.scratch.pin(wanted.name)

    def wanted_at(self, path: Path) -> Wanted | None:
        return self._fetched.get(path)

    def link(self, pairs: Sequence[tuple[Wanted, str]]) -> None:
        """Copies made by the server, of at most 5 GB each."""
        self.bucket.each(lambda pair: self._link(*pair), pairs)

    def _link(self, wanted: Wanted, name: str) -> None:
        found = self.stat(wanted.name)
        check_size(self._where(wanted.name), wanted, found.bytes if found else None)
        what = f"{self._where(wanted.name)} to {name}"
        self.bucket.copy(self._key(wanted.name), self._key(name), what)

    def discard(self, prefix: str, names: Sequence[str]) -> None:
        shutil.rmtree(self.writable(prefix), ignore_errors=True)
        self._published.pop(prefix, None)
        try:
            self.bucket.each(self.delete, [f"{prefix}/{name}" for name in names])
        except (StorageError, EnvironmentFault) as error:
            # must not hide why the attempt ended; gc finds the rest
            log.warning("could not remove the files of an attempt (%s); `yanmo store gc` will", error)

    def settle(self, prefix: str) -> None:
        """Move the files into the read cache: whoever reads them next on this node has them."""
        folder = self.writable(prefix)
        for name, written in self._published.pop(prefix, []):
            self.scratch.adopt(folder / name, written.sha256)
        shutil.rmtree(folder, ignore_errors=True)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Path]:
        small = [one for one in wanted if one.bytes <= PART_BYTES]
        paths = dict(zip(small, self.bucket.each(self._fetch, small), strict=True))
        return [paths[one] if one in paths else self._fetch(one, large=True) for one in wanted]

    def release(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self.scratch.release(path)

    def _fetch(self, wanted: Wanted, large: bool = False) -> Path:
        where, key = self._where(wanted.name), self._key(wanted.name)

        def download(path: Path) -> None:
            self.bucket.download(wanted, key, path, where, large=large)

        path = self.scratch.get(wanted.name, wanted.sha256, wanted.bytes, download)
        self._fetched[path] = wanted
        return path

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        for found in self.bucket.listed(self._base(prefix), self.uri):
            name = found.object_name.removeprefix(self._base(""))
            if is_name(name):  # others in this bucket are not ours
                yield _info(name, found)

    def _base(self, prefix: str) -> str:
        base = self._key(prefix) if prefix else self.prefix
        return f"{base}/" if base else ""

    def digest(self, name: str) -> Written | None:
        found = self.stat(name)
        if found is None:
            return None
        hashed, wanted = hashlib.sha256(), Wanted(name, found.bytes, "")
        for data in self.bucket.chunks(wanted, self._key(name), self._where(name), large=True):
            hashed.update(data)
        return Written(found.bytes, hashed.hexdigest())

    def delete(self, name: str) -> None:
        self.bucket.delete(self._key(name), self._where(name))

    def leftovers(self) -> Iterator[Leftover]:
        marker = ""
        while True:
            page = self.bucket.ask(f"listing uploads of {self.uri}", functools.partial(self._uploads, marker))
            for upload in page.uploads:
                name = upload.object_name.removeprefix(self._base(""))
                if is_name(name):
                    remove = functools.partial(self.bucket.abort, upload.object_name, upload.upload_id)
                    yield Leftover(name, "unfinished upload", 0, upload.initiated_time.timestamp(), remove)
            if not page.is_truncated or not page.next_key_marker:
                return
            marker = page.next_key_marker

    def _uploads(self, marker: str) -> Any:
        return self.bucket.client._list_multipart_uploads(
            self.bucket.name, prefix=self._base(""), key_marker=marker or None, max_uploads=_UPLOADS
        )


def _shown_as(name: str) -> dict[str, str]:
    """Return the type that a browser is told; without it a page would be saved as a file."""
    return {"Content-Type": "text/html; charset=utf-8"} if name.endswith(".html") else {}


def _info(name: str, found: Any) -> ObjectInfo:
    return ObjectInfo(name, found.size, found.last_modified.timestamp())
