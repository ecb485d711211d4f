"""Bytes to and from S3: many parts at once, bounded memory, sha256 computed while they pass.

At most `THREADS` requests run at a time and at most `THREADS + 1` parts are in memory. A part is repeated
alone when its request fails; the server checks each body it gets (Client._build_headers), and what comes
back is compared with the manifest's sha256 before anybody sees it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from minio.datatypes import Part
from minio.error import S3Error
from urllib3 import BaseHTTPResponse

from yanmo.common.errors import StorageError
from yanmo.common.threads import thread_pool
from yanmo.store.objects import Damaged, Wanted, Written, check_sha256, check_size
from yanmo.store.recall import Recall, current, under
from yanmo.store.s3.client import Client
from yanmo.store.s3.retry import OutOfRange, RetryBudget, body_of, check_length

THREADS = 8
PART_BYTES = 8 << 20
_MOST_PARTS = 10_000
T = TypeVar("T")
S = TypeVar("S")


class Transfer:
    """Uploads and downloads of one bucket."""

    def __init__(self, client: Client, bucket: str, retry_budget: RetryBudget) -> None:
        self.client, self.bucket, self._retry_budget = client, bucket, retry_budget
        self._pool = thread_pool(THREADS, "s3")

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
        """The bytes of the object `name` in order; arguments and errors as of `download`.

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
        recall = Recall(current())

        def run(item: S) -> T:
            with under(recall):
                return action(item)

        try:
            for item in items:
                running.append(self._pool.submit(run, item))
                if len(running) >= THREADS:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        except BaseException as error:
            recall.set()
            if isinstance(error, (SystemExit, KeyboardInterrupt)):
                self._retry_budget.down = True
            raise
        finally:
            for future in running:
                future.cancel()
            wait(running)  # nothing may still write when the caller cleans up

    def _upload_small(self, path: Path, name: str) -> Written:
        data = path.read_bytes()
        put = lambda: self.client._put_object(self.bucket, name, data)  # noqa: E731
        self._retry_budget.retry(f"writing {name}", absent_passes=True).run(put)
        return Written(len(data), hashlib.sha256(data).hexdigest())

    def _upload_large(self, path: Path, name: str) -> Written:
        start = lambda: self.client._create_multipart_upload(self.bucket, name, {})  # noqa: E731
        upload = self._retry_budget.retry(f"writing {name}").run(start)
        try:
            return self._upload_parts(path, name, upload)
        except BaseException:  # Ctrl-C too: an unfinished upload costs money until somebody aborts it
            self.abort(name, upload)
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
        put = lambda: self.client._put_object(self.bucket, name, data, None, query)  # noqa: E731
        try:
            return str(
                self._retry_budget.retry(f"writing part {number} of {name}", absent_passes=True).run(put).etag
            )
        except FileNotFoundError as error:
            raise StorageError(
                f"{name}: its upload was aborted by somebody; run the command again"
            ) from error

    def _complete(self, name: str, upload: str, parts: list[Part], total: int) -> None:
        """Join the parts; where an earlier try did it and only its answer was lost, the object is there."""

        def complete() -> None:
            try:
                self.client._complete_multipart_upload(self.bucket, name, upload, parts)
            except S3Error as error:
                if error.code not in ("NoSuchUpload", "NoSuchKey") or self._size(name) != total:
                    raise

        try:
            self._retry_budget.retry(f"completing {name}", absent_passes=True).run(complete)
        except FileNotFoundError as error:
            raise StorageError(
                f"{name}: its upload was aborted by somebody; run the command again"
            ) from error
        found = self._retry_budget.retry(f"looking at {name}").run(lambda: self._size(name))
        if found != total:  # S3 may answer 200 with an error in the body
            raise StorageError(
                f"{name}: uploaded {total} bytes, the server has {found}; run the command again"
            )

    def _size(self, name: str) -> int | None:
        """The object's bytes; one request, raises as minio does."""
        try:
            return int(self.client.stat_object(self.bucket, name).size)
        except S3Error as error:
            if error.code == "NoSuchKey":
                return None
            raise

    def abort(self, name: str, upload: str) -> None:
        """Give up a multipart upload; what cannot be aborted now is left to gc."""
        with contextlib.suppress(FileNotFoundError, StorageError):
            self._retry_budget.retry(f"aborting {name}").run(
                lambda: self.client._abort_multipart_upload(self.bucket, name, upload)
            )

    def _get(self, name: str, where: str, wanted: Wanted, offset: int, length: int) -> bytes:
        """One range of the object.

        Raises:
            Damaged: there is no object, or it has another size than `wanted`.
        """

        def get() -> bytes:
            answer = self.client.get_object(self.bucket, name, offset=offset, length=length)
            with body_of(answer):
                total = _total(answer)
                if total is not None:
                    check_size(where, wanted, total)
                data: bytes = answer.read(length)
                check_length(data, length)
                return data

        try:
            return self._retry_budget.retry(f"reading {where}").run(get)
        except FileNotFoundError:
            raise Damaged(f"{where}: expected {wanted.bytes} bytes, found no such file") from None
        except OutOfRange:
            raise Damaged(f"{where}: expected {wanted.bytes} bytes, found at most {offset}") from None


def _write(file: int, data: bytes, offset: int) -> None:
    """Write all of a part: a disk with room for some of it takes that, and refuses only the rest.

    Raises:
        OSError: no room, among others.
    """
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, offset)
        rest, offset = rest[written:], offset + written


def _total(answer: BaseHTTPResponse) -> int | None:
    """The whole object's size, as the answer to a (ranged) GET tells it; None where it does not."""
    name = "Content-Range" if answer.status == 206 else "Content-Length"
    whole = answer.headers.get(name, "").rpartition("/")[2]
    return int(whole) if whole.isdigit() else None
