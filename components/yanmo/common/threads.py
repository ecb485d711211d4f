"""Pools of threads, none of which keeps its process from ending.

concurrent.futures knows a thread once its `start` has returned. Where SIGTERM or Ctrl-C comes before that,
nobody tells the thread that there will be no more work: it waits for some for ever, and the interpreter,
which joins all threads, for it. A pod that was asked to stop then stays until it is killed.
"""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor

_pools: weakref.WeakSet[ThreadPoolExecutor] = weakref.WeakSet()


def thread_pool(count: int, name: str) -> ThreadPoolExecutor:
    """Return a pool for one that no `with` ends."""
    pool = ThreadPoolExecutor(count, name)
    _pools.add(pool)
    return pool


def close_pools() -> None:
    """No more work for any pool: each of its threads ends when it has done what it does now."""
    for pool in list(_pools):
        pool.shutdown(wait=False, cancel_futures=True)
