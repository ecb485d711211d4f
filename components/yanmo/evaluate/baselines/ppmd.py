"""What PPMd (variant H, as in 7-Zip) needs for new texts after it has read the training text.

The second baseline without a model of ours: it predicts bytes from up to six before them and learns as it
goes. It reads the training text once; the process forks where that ends, and each child goes on with the
texts of one genre. The range coder's output grows as it writes, so each text's bytes are counted; a count may
be off by a byte, which the next one makes good.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import pyppmd

_ORDER = 6
"""Bytes of context. Mean over genres of the bundled validation split: 8.835 bits with 5, 8.815 with 6, 8.836
with 8, 8.851 with 12."""
_LEAST_MEMORY, _MOST_MEMORY = 1 << 24, (1 << 32) - 64
_MEMORY_PER_BYTE = 24
"""Bytes of model per byte of text, with room: a full model is thrown away and begun again."""


def added_bytes(prefix: bytes, groups: Sequence[Sequence[bytes]]) -> list[list[int]]:
    """The bytes that each text adds after `prefix` and the texts before it in its group.

    Forks, so it must run in a process without other threads.

    Raises:
        MemoryError: a child process died.
    """
    size = len(prefix) + max((sum(map(len, group)) for group in groups), default=0)
    memory = 1 << (size * _MEMORY_PER_BYTE).bit_length()
    encoder = pyppmd.Ppmd7Encoder(_ORDER, min(max(memory, _LEAST_MEMORY), _MOST_MEMORY))
    encoder.encode(prefix)
    return [_in_a_child(encoder, group) for group in groups]


def _in_a_child(encoder: pyppmd.Ppmd7Encoder, texts: Sequence[bytes]) -> list[int]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            with os.fdopen(writer, "w") as pipe:
                json.dump([len(encoder.encode(text)) for text in texts], pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        written = pipe.read()
    os.waitpid(child, 0)
    if not written:
        raise MemoryError("PPMd: a child process died; its model needs 24 bytes per byte of training text")
    sizes: list[int] = json.loads(written)
    return sizes
