"""What the proxies of the tests share: a server on a loop and thread of its own, and a seeded draw."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """Listens between `with` and its end; a subclass says what becomes of a connection."""

    scheme = "http"
    kinds: Sequence[str] = ()
    """What may happen to a connection or a request, in the order in which it is drawn."""
    head_limit = 65_536
    """Bytes that `readuntil` may look through."""

    def __init__(self, upstream: str, seed: int, host: str = "127.0.0.1") -> None:
        """Args:
        upstream: scheme://host:port of the server.
        host: address to listen on.
        """
        parts = urlsplit(upstream)
        assert parts.scheme == self.scheme and parts.hostname and parts.port, upstream
        self._upstream = (parts.hostname, parts.port)
        self.seed, self._host = seed, host
        self.met: Counter[str] = Counter()
        """Kind -> how many met it; `none` counts the undisturbed."""
        self.endpoint = ""
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name=type(self).__name__)
        self._server: asyncio.Server | None = None
        self._taken: set[asyncio.Task[None] | None] = set()
        """Connections that are served: asyncio holds their tasks weakly, and one that waits for a server that
        is gone may be collected in the midst."""

    @property
    def rates(self) -> Mapping[str, float]:
        """Kind -> share, together at most 1."""
        raise NotImplementedError

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._taken.add(task)
        try:
            await self._handle(reader, writer)
        finally:
            self._taken.discard(task)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._take, self._host, 0, limit=self.head_limit)
        self.endpoint = f"{self.scheme}://{self._host}:{self._server.sockets[0].getsockname()[1]}"

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _draw(self) -> tuple[str, random.Random]:
        """What happens to the next one, and a generator for its details."""
        point, details = self._random.random(), random.Random(self._random.getrandbits(64))
        chosen = "none"
        for kind in self.kinds:
            share = self.rates.get(kind, 0.0)
            if point < share:
                chosen = kind
                break
            point -= share
        self.met[chosen] += 1
        return chosen, details


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST, not FIN."""
    one: socket.socket = writer.get_extra_info("socket")
    if one.fileno() >= 0:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
