"""Memory that is free but still counted as this process's, between the phases of a stage."""

from __future__ import annotations

import contextlib
import ctypes
import gc


def hand_back() -> None:
    """Hand freed memory back to the system, as far as the C library can (glibc; nothing elsewhere).

    The allocators of C and of Arrow keep what was freed for the next request. A phase that needed much, in
    many small pieces, so leaves its peak to the ones that follow: 40 MB after a vocabulary was made.
    """
    import pyarrow as pa

    gc.collect()
    pa.default_memory_pool().release_unused()
    # macOS and musl have no such function, Windows has no such library.
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
