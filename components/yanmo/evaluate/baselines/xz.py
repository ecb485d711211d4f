"""What a compressor that has read the training text needs for a new text: the baseline without a model.

    bits = 8 * (size(training text + new text) - size(training text)),  xz -9e

The dictionary covers the whole text. liblzma reads the training text once: the process forks where it ends,
and each child compresses one new text from there. Five runs of 12 s thus become one (10.3 MB of text, one
core); a test compares the sizes with those of whole runs.
"""

from __future__ import annotations

import lzma
import os
from collections.abc import Sequence

_CHUNK = 1 << 16
"""Bytes fed at a time. liblzma swallows what it is given and encodes at most one chunk of output per call:
with large pieces the encoding would wait for the children."""
_DICTIONARY = 1 << 26
"""Bytes of `xz -9e`'s dictionary."""


def added_bytes(prefix: bytes, texts: Sequence[bytes]) -> list[int]:
    """The bytes by which `xz -9e` of `prefix` grows when each of `texts` follows it.

    Forks, so it must run in a process without other threads.
    """
    compressor = _compressor(len(prefix) + max(map(len, texts), default=0))
    emitted = 0
    for start in range(0, len(prefix), _CHUNK):
        emitted += len(compressor.compress(prefix[start : start + _CHUNK]))
    alone, *together = [emitted + _rest_of(compressor, text) for text in (b"", *texts)]
    return [size - alone for size in together]


def _compressor(size: int) -> lzma.LZMACompressor:
    dictionary = max(_DICTIONARY, 1 << (size - 1).bit_length() if size > 1 else 1)
    preset = 9 | lzma.PRESET_EXTREME
    filters = [{"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": min(dictionary, 1 << 30)}]
    return lzma.LZMACompressor(format=lzma.FORMAT_XZ, filters=filters)


def _rest_of(compressor: lzma.LZMACompressor, text: bytes) -> int:
    """Bytes that are still to come when `text` is the last input; the compressor itself stays as it is."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        size = -1
        try:
            size = len(compressor.compress(text)) + len(compressor.flush())
        finally:
            os.write(writer, str(size).encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        size = int(pipe.read() or b"-1")
    os.waitpid(child, 0)
    if size < 0:
        raise MemoryError("xz: a child process died; it needs about 700 MB of memory")
    return size
