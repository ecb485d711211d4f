"""A server that goes away for a while and comes back at the same address, in front of a real one."""

from __future__ import annotations

import asyncio
from typing import Literal
from urllib.parse import urlsplit

from servers.fault_proxy import FaultProxy, Faults

Kind = Literal["status", "swallow", "refused"]


class Outage(FaultProxy):
    """Between `begin` and `end` no request gets an answer that helps; before and after all of them do."""

    def __init__(self, upstream: str, seed: int = 0, host: str = "127.0.0.1") -> None:
        super().__init__(upstream, Faults(rates={}), seed, host)

    def begin(self, kind: Kind) -> None:
        """Args:
        kind: `status` answers 500, 503 and 429; `swallow` does the work and loses the answer; `refused`
            closes the port.
        """
        if kind == "refused":
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        else:
            self.faults = Faults(rates={kind: 1.0})

    def end(self) -> None:
        """Be there again."""
        self.faults = Faults(rates={})
        if self._server is None:
            asyncio.run_coroutine_threadsafe(self._open_again(), self._loop).result(10)

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        self._server = None

    async def _open_again(self) -> None:
        port = urlsplit(self.endpoint).port
        self._server = await asyncio.start_server(self._handle, self._host, port, limit=self.head_limit)
