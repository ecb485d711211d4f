"""A bucket of an S3 server, by whole keys: single requests, and files in many parts at once.

Every request is made again until it is answered, or its time is up (retry.py). At most `THREADS` run at a
time and at most `THREADS + 1` parts are in memory. The server checks each body it gets
(Client._build_headers), and what comes back is compared with the manifest's sha256 before anybody sees it.

Two use it: the store (store.py) and raw files of others (files.py).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from minio.commonconfig import CopySource
from minio.datatypes import Part
from minio.error import S3Error
from urllib3 import BaseHTTPResponse

from yanmo.common import waiting
from yanmo.common.errors import StorageError
from yanmo.common.threads import thread_pool
from yanmo.common.waiting import Cancellation, current_cancellation, under
from yanmo.store.objects import MAX_DOCUMENT_BYTES, Damaged, Wanted, Written, check_sha256, check_size
from yanmo.store.s3.client import connect
from yanmo.store.s3.retry import OutOfRange, PreconditionFailed, Retry, RetryBudget, Truncated, retry_seconds

THREADS = 8
PART_BYTES = 8 << 20
_MOST_PARTS = 10_000
_PAGE = 1000
T = TypeVar("T")
S = TypeVar("S")


class Got(NamedTuple):
    """The answer to a GET."""

    data: bytes
    etag: str
    total: int
    """Bytes of the whole object."""


class Bucket:
    """One bucket. `where` is how errors call an object; each method raises StorageError when it gives up."""

    def __init__(self, scheme: str, name: str, endpoint: str = "") -> None:
        self.name = name
        self.client = connect(scheme, endpoint, THREADS + 2)
        self._retry_budget = RetryBudget(
            seconds=retry_seconds(),
            pool=self.client.pool,
            longest_wait=waiting.longest_wait(),
            keys_may_change=self.client.keys_may_change,
        )
        self._pool = thread_pool(THREADS, "s3")

    def ask(self, what: str, request: Callable[[], T], *, absent_passes: bool = False) -> T:
        """Return the answer to a request, made again while its failure may pass; raises as `Retry.run`."""
        return Retry(what, self._retry_budget, absent_passes=lambda: absent_passes).run(request)

    def get(
        self,
        key: str,
        where: str,
        *,
        offset: int = 0,
        length: int = 0,
        most: int = MAX_DOCUMENT_BYTES + 1,
        etag: str = "",
    ) -> Got:
        """Return a range of the object, or where there is no `length`, its first `most` bytes.

        Args:
            etag: of the version that it must be; "" for any.

        Raises:
            FileNotFoundError: there is none.
            PreconditionFailed: it is another version.
            OutOfRange: it ends before `offset`.
        """
        headers = {"If-Match": f'"{etag}"'} if etag else None

        def get() -> Got:
            answer = self.client.get_object(
                self.name, key, offset=offset, length=length, request_headers=headers
            )
            try:
                whole = _whole(answer)  # first: a body without a length has no end while the server lives
                data: bytes = answer.read(length or most)
                total = len(data) if whole is None else whole
                expected = min(length or most, total - offset)
                if len(data) != expected:
                    raise Truncated(f"expected {expected} bytes, got {len(data)}")
                return Got(data, answer.headers["ETag"], total)
            finally:
                answer.close()
                answer.release_conn()

        return self.ask(f"reading {where}", get)

    def put_if(self, key: str, data: bytes, where: str, headers: dict[str, str]) -> str:
        """Write a small object under the condition in `headers`; return its version.

        After a try whose answer was lost, or was no word on the object, a refusal is compared with what is
        there.

        Raises:
            PreconditionFailed: another writer's object is there, or there is none to replace.
        """

        def absent_passes() -> bool:
            """Return whether NoSuchKey is no word on the object: one to create, or the version to replace."""
            if "If-None-Match" in headers:
                return True
            try:
                found = self.get(key, where)
            except FileNotFoundError:
                return False
            return found.etag.removeprefix("W/").strip('"') == headers["If-Match"].strip('"')

        retry = Retry(f"writing {where}", self._retry_budget, absent_passes=absent_passes)
        try:
            return f'"{retry.run(lambda: self._put(key, data, dict(headers)))}"'
        except (PreconditionFailed, FileNotFoundError) as refusal:
            if retry.failures:
                with contextlib.suppress(FileNotFoundError):
                    found = self.get(key, where)
                    if found.data == data:
                        return found.etag.removeprefix("W/")
            raise PreconditionFailed(str(refusal)) from None

    def _put(self, key: str, data: bytes, headers: Any = None, query: Any = None) -> str:
        """Send an object, or a part of one, in one request; return its ETag."""
        written = self.client._put_object(self.name, key, data, headers, query)
        _require(written.http_headers, "ETag")
        return str(written.etag)

    def _head(self, key: str) -> Any:
        """Return what `stat` does; one request, raises as minio does."""
        found = self.client.stat_object(self.name, key)
        _require(found.metadata, "Content-Length", "ETag", "Last-Modified")
        return found

    def stat(self, key: str, where: str) -> Any:
        """Return the object's `size`, `etag` and `last_modified`; None where there is none."""
        try:
            return self.ask(f"looking at {where}", lambda: self._head(key))
        except FileNotFoundError:
            return None

    def listed(self, prefix: str, where: str) -> Iterator[Any]:
        """Yield what is below a prefix, as `stat` and with `object_name`; a failing page is asked again."""
        after = ""
        while True:
            page = self.ask(f"listing {where}", functools.partial(self._page, prefix, after))
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].object_name

    def _page(self, prefix: str, after: str) -> list[Any]:
        found = self.client.list_objects(self.name, prefix=prefix, recursive=True, start_after=after or None)
        return list(itertools.islice(found, _PAGE))

    def copy(self, source: str, target: str, what: str) -> None:
        """Let the server copy an object of at most 5 GB."""
        from_here = CopySource(self.name, source)
        self.ask(f"copying {what}", lambda: self.client.copy_object(self.name, target, from_here))

    def delete(self, key: str, where: str) -> None:
        """Remove the object; no error where there is none."""
        with contextlib.suppress(FileNotFoundError):
            self.ask(f"deleting {where}", lambda: self.client.remove_object(self.name, key))

    def upload(self, files: Sequence[tuple[Path, str]]) -> list[Written]:
        """Upload each (file, object name); small ones together, large ones in parts.

        Raises:
            StorageError: given up; unfinished multipart uploads were aborted.
        """
        large = [path.stat().st_size > PART_BYTES for path, _ in files]
        small = [file for file, is_large in zip(files, large, strict=True) if not is_large]
        done = self._ordered(lambda file: self._upload_small(*file), small)
        return [
            self._upload_large(*file) if is_large else next(done)
            for file, is_large in zip(files, large, strict=True)
        ]

    def download(self, wanted: Wanted, name: str, path: Path, where: str, *, large: bool) -> None:
        """Write the object `name` to the new file `path`, its sha256 checked while it passes.

        Args:
            where: how to call the object in an error.
            large: fetch its parts in parallel (from the calling thread only).

        Raises:
            Damaged: the object has other bytes than its manifest says.
        """
        hashed = hashlib.sha256()
        with path.open("xb") as file:
            write = functools.partial(_write, file.fileno())
            for data in self.chunks(wanted, name, where, large=large, seen=write):
                hashed.update(data)
        check_sha256(where, wanted, hashed.hexdigest())

    def chunks(
        self,
        wanted: Wanted,
        name: str,
        where: str,
        *,
        large: bool,
        seen: Callable[[bytes, int], object] = lambda data, offset: None,
    ) -> Iterator[bytes]:
        """Yield the bytes of the object `name` in order; arguments and errors as of `download`.

        Args:
            seen: called with each part and its offset by the thread that fetched it, in any order.
        """
        ranges = [(at, min(PART_BYTES, wanted.bytes - at)) for at in range(0, wanted.bytes, PART_BYTES)]
        if not ranges:
            self._get(name, where, wanted, 0, 0)  # an empty object has no parts, but it must be there

        def fetch(part: tuple[int, int]) -> bytes:
            data = self._get(name, where, wanted, *part)
            seen(data, part[0])
            return data

        yield from self._ordered(fetch, ranges) if large else map(fetch, ranges)

    def each(self, action: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """`action` of every item, `THREADS` at a time, in order; the first error is raised."""
        return list(self._ordered(action, items))

    def _ordered(self, action: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        """Results in order, never more than `THREADS` ahead of the reader."""
        running: deque[Future[T]] = deque()
        cancellation = Cancellation(current_cancellation())

        def run(item: S) -> T:
            with under(cancellation):
                return action(item)

        try:
            for item in items:
                running.append(self._pool.submit(run, item))
                if len(running) >= THREADS:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        except BaseException as error:
            cancellation.set()
            if isinstance(error, (SystemExit, KeyboardInterrupt)):
                self._retry_budget.down = True
            raise
        finally:
            for future in running:
                future.cancel()
            wait(running)  # nothing may still write when the caller cleans up

    def _upload_small(self, path: Path, name: str) -> Written:
        data = path.read_bytes()
        self.ask(f"writing {name}", lambda: self._put(name, data), absent_passes=True)
        return Written(len(data), hashlib.sha256(data).hexdigest())

    def _upload_large(self, path: Path, name: str) -> Written:
        start = lambda: self.client._create_multipart_upload(self.name, name, {})  # noqa: E731
        upload = self.ask(f"writing {name}", start)
        try:
            return self._upload_parts(path, name, upload)
        except BaseException as error:  # Ctrl-C too: an unfinished upload costs money until it is aborted
            self.abort(name, upload)
            if isinstance(error, FileNotFoundError):
                raise StorageError(f"{name}: its upload was aborted; run the command again") from error
            raise

    def _upload_parts(self, path: Path, name: str, upload: str) -> Written:
        hashed, total = hashlib.sha256(), 0
        size = max(PART_BYTES, -(-path.stat().st_size // _MOST_PARTS))

        def chunks(file: BinaryIO) -> Iterator[bytes]:
            nonlocal total
            while data := file.read(size):
                hashed.update(data)
                total += len(data)
                yield data

        def put(part: tuple[int, bytes]) -> Part:
            number, data = part
            return Part(number, self._put_part(name, upload, number, data))

        with path.open("rb") as file:
            parts = list(self._ordered(put, enumerate(chunks(file), start=1)))
        self._complete(name, upload, parts, total)
        return Written(total, hashed.hexdigest())

    def _put_part(self, name: str, upload: str, number: int, data: bytes) -> str:
        query: Any = {"partNumber": str(number), "uploadId": upload}
        put = lambda: self._put(name, data, None, query)  # noqa: E731
        return self.ask(f"writing part {number} of {name}", put, absent_passes=True)

    def _complete(self, name: str, upload: str, parts: list[Part], total: int) -> None:
        """Join the parts; where an earlier try did it and only its answer was lost, the object is there."""

        def complete() -> None:
            try:
                self.client._complete_multipart_upload(self.name, name, upload, parts)
            except S3Error as error:
                if error.code not in ("NoSuchUpload", "NoSuchKey") or self._size(name) != total:
                    raise

        self.ask(f"completing {name}", complete, absent_passes=True)
        found = self.ask(f"looking at {name}", lambda: self._size(name))
        if found != total:  # S3 may answer 200 with an error in the body
            raise StorageError(
                f"{name}: uploaded {total} bytes, the server has {found}; run the command again"
            )

    def _size(self, name: str) -> int | None:
        """Return the object's bytes; one request, raises as minio does."""
        try:
            return int(self._head(name).size)
        except S3Error as error:
            if error.code == "NoSuchKey":
                return None
            raise

    def abort(self, name: str, upload: str) -> None:
        """Give up a multipart upload; what cannot be aborted now is left to gc."""
        with contextlib.suppress(FileNotFoundError, StorageError):
            abort = lambda: self.client._abort_multipart_upload(self.name, name, upload)  # noqa: E731
            self.ask(f"aborting {name}", abort)

    def _get(self, name: str, where: str, wanted: Wanted, offset: int, length: int) -> bytes:
        """Return one range of the object.

        Raises:
            Damaged: there is no object, or it has another size than `wanted`.
        """
        try:
            found = self.get(name, where, offset=offset, length=length, most=0)
        except FileNotFoundError:
            raise Damaged(f"{where}: expected {wanted.bytes} bytes, found no such file") from None
        except OutOfRange:
            raise Damaged(f"{where}: expected {wanted.bytes} bytes, found at most {offset}") from None
        check_size(where, wanted, found.total)
        return found.data


def _write(file: int, data: bytes, offset: int) -> None:
    """Write all of a part: a disk with room for some of it takes that, and refuses only the rest.

    Raises:
        OSError: no room, among others.
    """
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, offset)
        rest, offset = rest[written:], offset + written


def _whole(answer: BaseHTTPResponse) -> int | None:
    """Return the whole object's size, as the answer to a (ranged) GET tells it; None of a chunked whole one.

    Raises:
        Truncated: it does not tell it, or has no ETag.
    """
    name = "Content-Range" if answer.status == 206 else "Content-Length"
    is_chunked = "chunked" in answer.headers.get("Transfer-Encoding", "").lower()  # says where it ends
    _require(answer.headers, "ETag", *(() if is_chunked else ("Content-Length",)))
    if is_chunked and answer.status != 206:
        return None
    _require(answer.headers, name)
    whole = answer.headers[name].rpartition("/")[2]
    if not whole.isdigit():
        raise Truncated(f"expected the object's bytes in {name}, got {answer.headers[name]!r}")
    return int(whole)


def _require(headers: Any, *names: str) -> None:
    """Raise Truncated unless an answer has these headers: a proxy that drops some damages no object."""
    for name in names:
        if not headers.get(name):
            raise Truncated(f"the answer has no {name}, which every server sends")
