"""The pieces of single bytes, by their two usual names: `<0x41>`, and one printable character."""

from __future__ import annotations

BYTES = tuple(f"<0x{i:02X}>" for i in range(256))
"""As `byte_fallback` names them."""
BYTE_SCORE = -1000.0
"""Low enough that the literal text `<0x41>` is never written as a byte piece."""
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
"""Bytes that stand for themselves in GPT-2's table (bytes_to_unicode); the others go to U+0100 onwards."""


def _table() -> tuple[str, ...]:
    others = iter(range(0x100, 0x200))
    return tuple(chr(b) if b in _PRINTABLE else chr(next(others)) for b in range(256))


ALPHABET = _table()
"""The character of each byte, as a ByteLevel step spells it."""
