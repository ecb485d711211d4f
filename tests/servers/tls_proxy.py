"""A TCP proxy before a TLS server that ends connections in the middle of a handshake, or later, unannounced.

It never looks into TLS: a connection is cut after so many bytes of one direction, by FIN or by RST, drawn
from a seeded generator. A FIN without close_notify is what a client may take for the end of an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit

KINDS = ("hello", "flight", "later", "plain")
"""Cut in the client's hello; in the server's first flight; in the data after it; or 503 comes in clear."""
_NEVER = 1 << 62
_PLAIN = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class TlsProxy:
    """Listens in a thread of its own between `with` and its end."""

    def __init__(
        self,
        upstream: str,
        rates: dict[str, float],
        seed: int = 0,
        host: str = "127.0.0.1",
        idle_seconds: float = 0.01,
    ) -> None:
        """Args:
        upstream: https://host:port of the server.
        rates: kind (one of KINDS) -> share of connections, together at most 1.
        host: address to listen on.
        idle_seconds: a connection that waits so long for its next request is ended, so that there are many
            handshakes.
        """
        parts = urlsplit(upstream)
        assert parts.scheme == "https" and parts.hostname and parts.port, upstream
        assert set(rates) <= set(KINDS) and sum(rates.values()) <= 1, rates
        self._upstream = (parts.hostname, parts.port)
        self.rates, self.seed, self._host, self._idle_seconds = rates, seed, host, idle_seconds
        self.met: Counter[str] = Counter()
        """Kind -> connections that met it; `none` counts the undisturbed."""
        self.endpoint = ""
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="tls-proxy")
        self._server: asyncio.Server | None = None

    def __enter__(self) -> TlsProxy:
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
        self._server = await asyncio.start_server(self._handle, self._host, 0)
        self.endpoint = f"https://{self._host}:{self._server.sockets[0].getsockname()[1]}"

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _draw(self) -> tuple[str, random.Random]:
        point, details = self._random.random(), random.Random(self._random.getrandbits(64))
        chosen = "none"
        for kind in KINDS:
            share = self.rates.get(kind, 0.0)
            if point < share:
                chosen = kind
                break
            point -= share
        self.met[chosen] += 1
        return chosen, details

    async def _end_idle(self, flow: _Flow) -> None:
        """Return when nothing has come for a while after an answer."""
        clock = asyncio.get_running_loop().time
        while flow.way == "up" or clock() - flow.at < self._idle_seconds:
            await asyncio.sleep(self._idle_seconds / 4)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind, draw = self._draw()
        with contextlib.suppress(OSError):
            if kind == "plain":
                await reader.read(1)
                writer.write(_PLAIN)
                await writer.drain()
                writer.close()
                return
            up = draw.randrange(1, 500) if kind == "hello" else _NEVER
            down = {"flight": draw.randrange(1, 900), "later": draw.randrange(1500, 40_000)}.get(kind, _NEVER)
            there, back = await asyncio.open_connection(*self._upstream)
            flow = _Flow()
            pumps = [
                asyncio.create_task(_pump(reader, back, up, flow, "up")),
                asyncio.create_task(_pump(there, writer, down, flow, "down")),
            ]
            watch = asyncio.create_task(self._end_idle(flow))
            pumps.append(watch)
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                for one in (writer, back):
                    if kind != "none" and draw.random() < 0.5:
                        _reset(one)
                    one.close()


@dataclass
class _Flow:
    """When bytes passed last, and which way."""

    way: str = "up"
    at: float = 0.0


async def _pump(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, most: int, flow: _Flow, way: str
) -> None:
    """Carry bytes until the source ends or `most` of them passed."""
    while most and (data := await source.read(min(65_536, most))):
        most -= len(data)
        flow.way, flow.at = way, asyncio.get_running_loop().time()
        target.write(data)
        await target.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End it with RST, not FIN."""
    one: socket.socket = writer.get_extra_info("socket")
    if one.fileno() >= 0:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
