"""What a compressor that has read the training text needs for new texts: baselines without a model of ours.

Each reads the training text once; the process forks where that ends, and each child goes on from there. Five
runs of xz of 12 s thus become one (10.3 MB of text, one core); a test compares the sizes with whole runs.

    xz -9e    bits = 8 * (size(training text + new text) - size(training text)); its dictionary covers all
    PPMd      variant H, as in 7-Zip: predicts bytes from up to six before them and learns as it goes. Its
              range coder's output grows as it writes, so each text's bytes are counted; a count may be off
              by a byte, which the next one makes good.
"""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Callable, Sequence
from typing import Any

import pyppmd

_CHUNK = 1 << 16
"""Bytes fed to xz at a time. liblzma swallows what it is given and encodes at most one chunk of output per
call: with large pieces the encoding would wait for the children."""
_DICTIONARY = 1 << 26
"""Bytes of `xz -9e`'s dictionary."""
_ORDER = 6
"""Bytes of PPMd's context. Mean over genres of the bundled validation split: 8.835 bits with 5, 8.815 with 6,
8.836 with 8, 8.851 with 12."""
_LEAST_MEMORY, _MOST_MEMORY = 1 << 24, (1 << 32) - 64
_MEMORY_PER_BYTE = 24
"""Bytes of PPMd's model per byte of text, with room: a full model is thrown away and begun again."""


def added_by_xz(prefix: bytes, texts: Sequence[bytes]) -> list[int]:
    """Return the bytes by which `xz -9e` of `prefix` grows when each of `texts` follows it.

    Forks, so it must run in a process without other threads.

    Raises:
        MemoryError: a child process died.
    """
    size = len(prefix) + max(map(len, texts), default=0)
    dictionary = max(_DICTIONARY, 1 << (size - 1).bit_length() if size > 1 else 1)
    preset = 9 | lzma.PRESET_EXTREME
    filters = [{"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": min(dictionary, 1 << 30)}]
    compressor = lzma.LZMACompressor(format=lzma.FORMAT_XZ, filters=filters)
    emitted = 0
    for start in range(0, len(prefix), _CHUNK):
        emitted += len(compressor.compress(prefix[start : start + _CHUNK]))

    def rest_of(text: bytes) -> list[int]:
        return [len(compressor.compress(text)) + len(compressor.flush())]

    found = [emitted + _in_a_child(rest_of, text, "xz: it needs about 700 MB")[0] for text in (b"", *texts)]
    return [size - found[0] for size in found[1:]]


def added_by_ppmd(prefix: bytes, groups: Sequence[Sequence[bytes]]) -> list[list[int]]:
    """Return the bytes that each text adds after `prefix` and the texts before it in its group.

    Forks, so it must run in a process without other threads.

    Raises:
        MemoryError: a child process died.
    """
    size = len(prefix) + max((sum(map(len, group)) for group in groups), default=0)
    memory = 1 << (size * _MEMORY_PER_BYTE).bit_length()
    encoder = pyppmd.Ppmd7Encoder(_ORDER, min(max(memory, _LEAST_MEMORY), _MOST_MEMORY))
    encoder.encode(prefix)

    def sizes_of(texts: Sequence[bytes]) -> list[int]:
        return [len(encoder.encode(text)) for text in texts]

    return [_in_a_child(sizes_of, group, "PPMd: 24 bytes per byte of training text") for group in groups]


def _in_a_child(work: Callable[[Any], list[int]], given: Any, needs: str) -> list[int]:
    """Return what `work` finds in a child process; what it changes stays as it is here."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            with os.fdopen(writer, "w") as pipe:
                json.dump(work(given), pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        written = pipe.read()
    os.waitpid(child, 0)
    if not written:
        raise MemoryError(f"a child process died, maybe for want of memory ({needs})")
    sizes: list[int] = json.loads(written)
    return sizes
