"""A prefix of a bucket as a plain folder of files for programs that are not ours: no manifest, no key."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from yanmo.common.errors import UsageError
from yanmo.store.s3.client import bucket_problem, connect
from yanmo.store.s3.retry import RetryBudget, body_of, check_length
from yanmo.store.s3.transfer import THREADS, Transfer

_MOST_READ = 16 << 20


class S3Folder:
    """The objects directly below `s3://bucket/prefix/`."""

    def __init__(self, uri: str, endpoint: str = "") -> None:
        parts = urlsplit(uri)
        self.uri, self._bucket, prefix = uri, parts.netloc, parts.path.strip("/")
        if not self._bucket or not prefix or parts.query or parts.fragment:
            raise UsageError(f"{uri[:200]}: expected s3://bucket/prefix")
        if problem := bucket_problem(self._bucket):
            raise UsageError(f"{uri[:200]}: {problem}")
        self._prefix = f"{prefix}/"
        self._client = connect(parts.scheme, endpoint, THREADS + 2)
        self._retry_budget = RetryBudget.with_client(self._client)
        self._transfer = Transfer(self._client, self._bucket, self._retry_budget)

    def names(self) -> list[str]:
        """The files there, sorted; one in a folder below has a slash."""

        def look() -> list[str]:
            listed = self._client.list_objects(self._bucket, prefix=self._prefix, recursive=True)
            return sorted(str(each.object_name).removeprefix(self._prefix) for each in listed)

        return self._retry_budget.retry(f"listing {self.uri}").run(look)

    def read(self, name: str) -> bytes:
        """The bytes of a small file.

        Raises:
            FileNotFoundError: there is none.
        """

        def get() -> bytes:
            answer = self._client.get_object(self._bucket, self._prefix + name)
            with body_of(answer):
                data: bytes = answer.read(_MOST_READ)
                check_length(data, min(int(answer.headers.get("Content-Length", len(data))), _MOST_READ))
                return data

        return self._retry_budget.retry(f"reading {self.uri}/{name}").run(get)

    def put(self, name: str, path: Path) -> None:
        """Upload a file, over what is there."""
        self._transfer.upload([(path, self._prefix + name)])

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that are gone already are no matter."""
        for name in names:
            remove = functools.partial(self._client.remove_object, self._bucket, self._prefix + name)
            with contextlib.suppress(FileNotFoundError):
                self._retry_budget.retry(f"deleting {self.uri}/{name}").run(remove)
