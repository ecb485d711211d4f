"""The `s3://` backend: any S3 server through minio's client.

`create` and `replace` are PUTs with If-None-Match and If-Match. Some servers ignore these headers silently,
so the first write of a process probes them; a store that fails is refused.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import logging
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from minio.commonconfig import CopySource

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
from yanmo.store.s3.client import bucket_problem, connect
from yanmo.store.s3.retry import (
    PreconditionFailed,
    RetryBudget,
    body_of,
    check_length,
)
from yanmo.store.s3.transfer import PART_BYTES, THREADS, Transfer
from yanmo.store.scratch import Scratch
from yanmo.store.settings import GIB, StoreSettings

log = logging.getLogger(__name__)
_PAGE = 1000


class S3Store:
    """Objects below a prefix of a bucket, with this machine's scratch for local files."""

    def __init__(self, uri: str, settings: StoreSettings) -> None:
        parts = urlsplit(uri)
        self.bucket, self.prefix = parts.netloc, parts.path.strip("/")
        if parts.query or parts.fragment:
            raise UsageError(f"--store {uri}: expected s3://bucket/prefix")
        if problem := bucket_problem(self.bucket):
            raise UsageError(f"--store {uri}: {problem}; expected s3://bucket/prefix")
        try:
            if self.prefix:
                check_name(self.prefix)
        except DataError as error:
            raise UsageError(f"--store {uri}: expected s3://bucket/prefix: {error}") from error
        self.uri = f"{parts.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")
        self.client = connect(parts.scheme, settings.endpoint, THREADS + 2)
        self.scratch = Scratch(settings.scratch_folder, int(settings.scratch_gib * GIB))
        self._retry_budget = RetryBudget.with_client(self.client)
        self._transfer = Transfer(self.client, self.bucket, self._retry_budget)
        self._conditional: bool | None = None
        self._quoted = True
        self._published: dict[str, list[tuple[str, Written]]] = {}

    def _key(self, name: str) -> str:
        check_name(name)
        return f"{self.prefix}/{name}" if self.prefix else name

    def _where(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def read(self, name: str) -> tuple[bytes, str]:
        key = self._key(name)

        def get() -> tuple[bytes, str]:
            answer = self.client.get_object(self.bucket, key)
            with body_of(answer):
                data = answer.read(MAX_DOCUMENT_BYTES + 1)
                length = int(answer.headers.get("Content-Length", len(data)))  # none where it is chunked
                check_length(data, min(length, MAX_DOCUMENT_BYTES + 1))
                return data, answer.headers["ETag"]

        data, version = self._retry_budget.retry(f"reading {self._where(name)}").run(get)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise DataError(
                f"{self._where(name)}: expected a document of Yanmo, found more than {MAX_DOCUMENT_BYTES} "
                "bytes: restore it"
            )
        return data, version.removeprefix("W/")

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
        """A conditional PUT; after a try whose answer was lost, a refusal is compared with what is there.

        Raises:
            PreconditionFailed: another writer's object is there, or there is none to replace.
        """
        key, headers = self._key(name), _shown_as(name) | condition
        retry = self._retry_budget.retry(
            f"writing {self._where(name)}", absent_passes="If-None-Match" in condition
        )
        try:
            result = retry.run(lambda: self.client._put_object(self.bucket, key, data, dict(headers)))
            return f'"{result.etag}"'
        except (PreconditionFailed, FileNotFoundError) as refusal:
            if retry.failures:
                with contextlib.suppress(FileNotFoundError):
                    found, version = self.read(name)
                    if found == data:
                        return version
            raise PreconditionFailed(str(refusal)) from None

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
        key = self._key(name)
        try:
            found = self._retry_budget.retry(f"looking at {self._where(name)}").run(
                lambda: self.client.stat_object(self.bucket, key)
            )
        except FileNotFoundError:
            return None
        return _info(name, found)

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        found = self._transfer.each(self.stat, names)
        return [None if info is None else info.bytes for info in found]

    def clock(self) -> float:
        return time.time() + self.client.pool.clock_offset

    def writable(self, prefix: str) -> Path:
        """Below `runs/` the folder outlives the process: a run killed here goes on from it."""
        check_name(prefix)
        if prefix.startswith("runs/"):
            return self.scratch.kept_work(f"{hashlib.sha256(self.uri.encode()).hexdigest()[:16]}/{prefix}")
        return self.scratch.work(prefix)

    def publish(self, prefix: str, names: Sequence[str]) -> list[Written]:
        folder = self.writable(prefix)
        written = self._transfer.upload([(folder / name, self._key(f"{prefix}/{name}")) for name in names])
        self._published.setdefault(prefix, []).extend(zip(names, written, strict=True))
        return written

    def link(self, pairs: Sequence[tuple[Wanted, str]]) -> None:
        """Copies made by the server, of at most 5 GB each."""
        self._transfer.each(lambda pair: self._link(*pair), pairs)

    def _link(self, wanted: Wanted, name: str) -> None:
        found = self.stat(wanted.name)
        check_size(self._where(wanted.name), wanted, found.bytes if found else None)
        source = CopySource(self.bucket, self._key(wanted.name))
        target = self._key(name)
        retry = self._retry_budget.retry(f"copying {self._where(wanted.name)} to {name}")
        retry.run(lambda: self.client.copy_object(self.bucket, target, source))

    def discard(self, prefix: str, names: Sequence[str]) -> None:
        shutil.rmtree(self.writable(prefix), ignore_errors=True)
        self._published.pop(prefix, None)
        try:
            self._transfer.each(self.delete, [f"{prefix}/{name}" for name in names])
        except (StorageError, EnvironmentFault) as error:
            # must not hide why the attempt ended; gc finds the rest
            log.warning("could not remove the files of an attempt (%s); `yanmo store gc` will", error)

    def settle(self, prefix: str) -> None:
        """Move the files into the read cache: whoever reads them next on this node has them."""
        folder = self.writable(prefix)
        for name, written in self._published.pop(prefix, []):
            self.scratch.adopt(folder / name, written.sha256, written.bytes)
        shutil.rmtree(folder, ignore_errors=True)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Path]:
        small = [one for one in wanted if one.bytes <= PART_BYTES]
        paths = dict(zip(small, self._transfer.each(self._fetch, small), strict=True))
        return [paths[one] if one in paths else self._fetch(one, large=True) for one in wanted]

    def release(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self.scratch.release(path)

    def _fetch(self, wanted: Wanted, large: bool = False) -> Path:
        where, key = self._where(wanted.name), self._key(wanted.name)

        def download(path: Path) -> None:
            self._transfer.download(wanted, key, path, where, large=large)

        return self.scratch.get(wanted.name, wanted.sha256, wanted.bytes, download)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        base, after = self._base(prefix), ""
        while True:  # page by page, so that a page that fails is asked for again
            page = self._retry_budget.retry(f"listing {self.uri}").run(
                functools.partial(self._page, base, after)
            )
            for found in page:
                name = found.object_name.removeprefix(self._base(""))
                if is_name(name):  # others in this bucket are not ours
                    yield _info(name, found)
            if len(page) < _PAGE:
                return
            after = page[-1].object_name

    def _base(self, prefix: str) -> str:
        base = self._key(prefix) if prefix else self.prefix
        return f"{base}/" if base else ""

    def _page(self, base: str, after: str) -> Sequence[Any]:
        found = self.client.list_objects(self.bucket, prefix=base, recursive=True, start_after=after or None)
        return list(itertools.islice(found, _PAGE))

    def digest(self, name: str) -> Written | None:
        found = self.stat(name)
        if found is None:
            return None
        hashed, wanted = hashlib.sha256(), Wanted(name, found.bytes, "")
        for data in self._transfer.chunks(wanted, self._key(name), self._where(name), large=True):
            hashed.update(data)
        return Written(found.bytes, hashed.hexdigest())

    def delete(self, name: str) -> None:
        key = self._key(name)
        with contextlib.suppress(FileNotFoundError):
            self._retry_budget.retry(f"deleting {self._where(name)}").run(
                lambda: self.client.remove_object(self.bucket, key)
            )

    def leftovers(self) -> Iterator[Leftover]:
        marker = ""
        while True:
            page = self._retry_budget.retry(f"listing uploads of {self.uri}").run(
                functools.partial(self._uploads, marker)
            )
            for upload in page.uploads:
                name = upload.object_name.removeprefix(self._base(""))
                if is_name(name):
                    remove = functools.partial(self._transfer.abort, upload.object_name, upload.upload_id)
                    yield Leftover(name, "unfinished upload", 0, upload.initiated_time.timestamp(), remove)
            if not page.is_truncated or not page.next_key_marker:
                return
            marker = page.next_key_marker

    def _uploads(self, marker: str) -> Any:
        return self.client._list_multipart_uploads(
            self.bucket, prefix=self._base(""), key_marker=marker or None, max_uploads=_PAGE
        )


def _shown_as(name: str) -> dict[str, str]:
    """What a browser that opens the object is told of it: without that it saves a page as a file."""
    kinds = {"html": "text/html; charset=utf-8", "xml": "application/atom+xml; charset=utf-8"}
    kind = kinds.get(name.rpartition(".")[2])
    return {"Content-Type": kind} if kind else {}


def _info(name: str, found: Any) -> ObjectInfo:
    return ObjectInfo(name, found.size, found.last_modified.timestamp())
