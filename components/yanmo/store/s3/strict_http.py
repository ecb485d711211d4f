"""HTTP whose answers are whole or not believed: urllib3's pool, and what it leaves unchecked.

`http.client` takes the end of the stream for the end of an answer's headers. An answer that a proxy or a
dying server cuts there passes for a whole one with fewer headers: 200 without a length and an ETag, an empty
body, a 404 whose reason is lost. Over TLS the same happens where a peer ends without close_notify. A cut
answer is a passing fault, so it is refused here, where the bytes are, for every kind of request at once.

Alternative not taken: a list of headers that each kind of answer must have. It is kept beside this
(`_require` in bucket.py), for proxies that drop headers of whole answers, but a cut between two others passes
by it.
"""

from __future__ import annotations

import http.client
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection


class _Watched:
    """The stream of an answer while its head is read; remembers the last line."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.last = b""

    def readline(self, limit: int = -1) -> bytes:
        self.last = bytes(self.stream.readline(limit))
        return self.last

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Answer(http.client.HTTPResponse):
    """An answer whose head ends with an empty line and not with the stream."""

    def begin(self) -> None:
        """As in http.client.

        Raises:
            http.client.IncompleteRead: the head was cut.
        """
        stream = self.fp
        watched: Any = _Watched(stream)
        self.fp = watched
        try:
            super().begin()
        finally:
            if self.fp is watched:  # closed at once where no body follows
                self.fp = stream
        if watched.last not in (b"\r\n", b"\n"):
            self.close()
            raise http.client.IncompleteRead(watched.last)


class _Connection(HTTPConnection):
    response_class = _Answer


class _TLSConnection(HTTPSConnection):
    response_class = _Answer


class _ConnectionPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSConnectionPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class StrictPool(urllib3.PoolManager):
    """urllib3's pools with connections that refuse a cut head."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(**kw)
        self.pool_classes_by_scheme = {"http": _ConnectionPool, "https": _TLSConnectionPool}
