"""A TCP proxy between an HTTP client and its server that breaks a given share of the requests.

It understands as little HTTP as it can: where a request's head ends and how long the body is said to be. By
adding `Connection: close` it makes each connection carry one request, so that the end of an answer is the end
of the stream. (`Connection` is hop-by-hop and not part of S3's signature.)

Which request meets which fault comes from a seeded generator, one draw per request in order of arrival, so a
run with one client connection at a time can be repeated exactly.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from servers.proxy import Proxy, reset

KINDS = (
    "cut_request",  # RST to both sides somewhere in the request
    "cut_response",  # RST to the client somewhere in the answer
    "truncate_request",  # the server gets half a body and then an orderly end
    "truncate_response",  # the client gets part of the answer and then an orderly end
    "cut_head",  # after all of the work the client gets part of the answer's head and an orderly end
    "swallow",  # the server does all of the work, the client gets RST instead of the answer
    "status",  # the proxy itself answers 500, 503 or 429
    "delay",  # nothing happens for a while
    "throttle",  # both directions are slow for a while
)
PLACES = ("status line", "after a line", "name", "value", "before the empty line", "inside the empty line")
"""Where `cut_head` ends an answer, evenly drawn: each lets a careless client believe something else."""
_STATUS = {500: "InternalError", 503: "SlowDown", 429: "TooManyRequests"}
_CHUNK = 64 * 1024
_HEAD_LIMIT = 256 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.I)


@dataclass(frozen=True, kw_only=True)
class Faults:
    """How often what goes wrong."""

    rates: dict[str, float]
    """Kind (one of KINDS) -> share of requests, together at most 1."""
    delay_seconds: float = 1.0
    """Longest delay; each is drawn evenly from 0 to this."""
    throttle_bytes_per_second: int = 64 * 1024
    throttle_seconds: float = 2.0
    """How long a throttled request is slow before it gets the whole line again."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.rates) - set(KINDS))
        if unknown or not 0 <= sum(self.rates.values()) <= 1:
            raise ValueError(f"rates {self.rates}: expected kinds of {KINDS}, together at most 1")

    @classmethod
    def evenly(cls, rate: float, **more: float) -> Faults:
        """Every kind equally often, `rate` of the requests in all."""
        return cls(rates={kind: rate / len(KINDS) for kind in KINDS}, **more)  # type: ignore[arg-type]


class FaultProxy(Proxy):
    """An HTTP proxy that breaks a share of the requests."""

    kinds = KINDS
    head_limit = _HEAD_LIMIT

    def __init__(self, upstream: str, faults: Faults, seed: int, host: str = "127.0.0.1") -> None:
        """Args:
        upstream: http://host:port of the server.
        host: address to listen on.
        """
        super().__init__(upstream, seed, host)
        self.faults = faults
        self.cuts: Counter[str] = Counter()
        """One of PLACES -> answers whose head ended there."""

    @property
    def rates(self) -> Mapping[str, float]:
        return self.faults.rates

    def report(self) -> str:
        """Seed and counts, for a log."""
        counts = ", ".join(f"{kind} {count}" for kind, count in sorted(self.met.items()))
        return f"fault proxy: seed {self.seed}, {sum(self.met.values())} requests: {counts}"

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Side(reader, writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            kind, draw = self._draw()
            await self._pass(client, head, kind, draw)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            client.close()

    async def _pass(self, client: _Side, head: bytes, kind: str, draw: random.Random) -> None:
        found = _LENGTH.search(head)
        length = int(found[1]) if found else 0
        if kind == "status":
            return await self._answer(client, length, draw)
        if kind == "delay":
            await asyncio.sleep(draw.uniform(0, self.faults.delay_seconds))
        server = _Side(*await asyncio.open_connection(*self._upstream))
        slow = self._throttle() if kind == "throttle" else None
        try:
            line, _, rest = head.partition(b"\r\n")
            one = _Pipe(client, server, line + b"\r\nConnection: close\r\n" + rest, slow)
            if kind in ("cut_request", "truncate_request"):
                return await self._break_request(one, length, kind, draw)
            up = asyncio.create_task(one.copy())
            try:
                await self._bring_answer(_Pipe(server, client, b"", slow), kind, draw)
            finally:
                up.cancel()
                await asyncio.gather(up, return_exceptions=True)
        finally:
            server.close()

    async def _answer(self, client: _Side, length: int, draw: random.Random) -> None:
        if draw.random() < 0.5:  # some servers read the body first, some do not
            await _Pipe(client, None, b"", None).copy(length)
        status = draw.choice(sorted(_STATUS))
        body = f"<Error><Code>{_STATUS[status]}</Code><Message>by the fault proxy</Message></Error>".encode()
        client.writer.write(
            b"HTTP/1.1 %d Fault\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%b" % (status, len(body), body)
        )
        await client.writer.drain()

    async def _break_request(self, up: _Pipe, length: int, kind: str, draw: random.Random) -> None:
        if kind == "truncate_request" and length:
            await up.copy(len(up.first) + draw.randrange(length))
            up.target.writer.write_eof()  # type: ignore[union-attr]
            with contextlib.suppress(TimeoutError):  # the server may wait for the rest
                async with asyncio.timeout(self.faults.delay_seconds):
                    await _Pipe(up.target, up.source, b"", None).copy()  # type: ignore[arg-type]
            return
        await up.copy(draw.randrange(len(up.first) + length))
        up.source.reset()
        up.target.reset()  # type: ignore[union-attr]

    async def _bring_answer(self, down: _Pipe, kind: str, draw: random.Random) -> None:
        client = down.target
        assert client is not None
        if kind == "cut_head":
            head = await down.source.reader.readuntil(b"\r\n\r\n")
            place = draw.choice(PLACES)
            self.cuts[place] += 1
            client.writer.write(head[: cut_at(head, place, draw)])
            return await client.writer.drain()
        if kind == "swallow":
            down.target = None
            await down.copy()
            return client.reset()
        if kind not in ("cut_response", "truncate_response"):
            return await down.copy()
        head = await down.source.reader.readuntil(b"\r\n\r\n")
        found = _LENGTH.search(head)
        whole = len(head) + (int(found[1]) if found else 0)
        first = draw.randrange(whole)
        down.first = head
        await down.copy(first)
        if kind == "cut_response":
            client.reset()

    def _throttle(self) -> _Throttle:
        return _Throttle(self.faults.throttle_bytes_per_second, self.faults.throttle_seconds)


def cut_at(head: bytes, place: str, draw: random.Random) -> int:
    """How many bytes of an answer's head come through when it is cut at `place`."""
    status, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if place == "status line" or not lines:
        return draw.randrange(1, len(status) + 2)
    if place == "before the empty line":
        return len(head) - 2
    if place == "inside the empty line":
        return len(head) - 1
    number = draw.randrange(len(lines))
    start = len(status) + 2 + sum(len(line) + 2 for line in lines[:number])
    if place == "after a line":
        return start
    name, _, value = lines[number].partition(b":")
    return start + (
        draw.randrange(1, len(name) + 1)
        if place == "name"
        else len(name) + 1 + draw.randrange(len(value) + 2)
    )


class _Side:
    """One of the two connections."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """End it with RST, not FIN: what was sent and not yet read is lost."""
        reset(self.writer)


class _Throttle:
    """A slow line that heals after some seconds."""

    def __init__(self, bytes_per_second: int, seconds: float) -> None:
        self._rate, self._end = bytes_per_second, asyncio.get_running_loop().time() + seconds

    async def wait(self, count: int) -> None:
        left = self._end - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.sleep(min(left, count / self._rate))


@dataclass
class _Pipe:
    """One direction."""

    source: _Side
    target: _Side | None
    """None swallows."""
    first: bytes
    """What is sent before anything is read."""
    slow: _Throttle | None

    async def copy(self, most: int | None = None) -> None:
        """Carry bytes until the source ends, or `most` of them (`first` included)."""
        left = most if most is not None else 1 << 62
        data = self.first
        while True:
            data = data[:left]
            left -= len(data)
            if data and self.target is not None:
                self.target.writer.write(data)
                await self.target.writer.drain()
            if data and self.slow:
                await self.slow.wait(len(data))
            if not left:
                return
            data = await self.source.reader.read(min(_CHUNK, left))
            if not data:
                return
