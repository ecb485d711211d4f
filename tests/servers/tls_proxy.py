"""A TCP proxy before a TLS server that ends connections in the middle of a handshake, or later, unannounced.

It never looks into TLS: a connection is cut after so many bytes of one direction, by FIN or by RST, drawn
from a seeded generator. A FIN without close_notify is what a client may take for the end of an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from servers.proxy import Proxy, reset

KINDS = ("hello", "flight", "later", "plain")
"""Cut in the client's hello; in the server's first flight; in the data after it; or 503 comes in clear."""
_NEVER = 1 << 62
_PLAIN = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class TlsProxy(Proxy):
    """Passes TLS on unread, and ends a share of the connections."""

    scheme = "https"
    kinds = KINDS

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
        super().__init__(upstream, seed, host)
        assert set(rates) <= set(KINDS) and sum(rates.values()) <= 1, rates
        self._rates, self._idle_seconds = rates, idle_seconds

    @property
    def rates(self) -> Mapping[str, float]:
        return self._rates

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
                        reset(one)
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
