"""Ways to damage a file: of its bytes, or by putting something else in its place."""

from __future__ import annotations

import io
import os
import random
import shutil
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

Bytes = Callable[[bytes, random.Random], bytes]
_PAGE = b"<!DOCTYPE html>\n<html><head><title>403 Forbidden</title></head><body>Denied</body></html>\n"
_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"


def _zipped(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("inner.txt", data)
    return out.getvalue()


def flipped(data: bytes, draw: random.Random) -> bytes:
    """`data` with one bit turned, drawn."""
    if not data:
        return b"\x01"
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


DESTROYED: dict[str, Bytes] = {
    "empty": lambda data, draw: b"",
    "a byte": lambda data, draw: data[:1],
    "zeros": lambda data, draw: bytes(len(data)),
    "noise": lambda data, draw: draw.randbytes(max(64, len(data))),
    "spaces": lambda data, draw: b" \n\t\r\n" * 50,
    "an error page": lambda data, draw: _PAGE,
    "a pointer of git-lfs": lambda data, draw: _POINTER,
    "an archive": lambda data, draw: _zipped(data),
    "nulls": lambda data, draw: b"null\n" * 3,
}
"""Nothing is left of what the file held: it is refused."""
HURT: dict[str, Bytes] = {
    "half": lambda data, draw: data[: len(data) // 2],
    "without the end": lambda data, draw: data[: -draw.randrange(2, 12)],
    "without the start": lambda data, draw: data[draw.randrange(2, 12) :],
    "a bit": flipped,
    "twice": lambda data, draw: data + data,
    "noise after it": lambda data, draw: data + draw.randbytes(100),
    "zeros after it": lambda data, draw: data + bytes(5000),
}
"""Something is left: it is refused, or the rest is right."""


def _recoded(encoding: str) -> Bytes:
    return lambda data, draw: data.decode("utf-8", "replace").encode(encoding, "replace")


OF_TEXT: dict[str, Bytes] = {
    **{encoding: _recoded(encoding) for encoding in ("utf-8-sig", "utf-16", "utf-32-be", "gb18030", "cp037")},
    "NUL": lambda data, draw: data.replace(b"\n", b"\0\n", 3),
    "control characters": lambda data, draw: bytes(range(32)) + b"\x7f\x1b[2J\n" + data,
    "wide line": lambda data, draw: data + "长".encode() * 2_000_000 + b"\n",
    "many lines": lambda data, draw: b"\n" * 3_000_000 + data,
    "no UTF-8": lambda data, draw: data + b"\xff\xfe\xfd\n",
    "half a character": lambda data, draw: data[: len(data) // 2].rstrip(b"\n") + b"\xe8\xaf\n" + data,
    "deep": lambda data, draw: b"[" * 100_000 + b"\n" + data,
}


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "inner").write_text("x")


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # its name may have 108 bytes
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


INSTEAD: dict[str, Callable[[Path], None]] = {
    "nothing": lambda path: None,
    "a folder": _folder,
    "a pipe": os.mkfifo,
    "a broken link": lambda path: path.symlink_to("nowhere"),
    "a loop": lambda path: path.symlink_to(path.name),
    "the zero device": lambda path: path.symlink_to("/dev/zero"),
    "the null device": lambda path: path.symlink_to("/dev/null"),
    "a socket": _socket,
    "memory": lambda path: path.symlink_to("/proc/self/mem"),
}
"""What lies where the file should; the file itself is gone."""


def put(path: Path, damaged: bytes) -> None:
    """Other bytes at `path`, as a new file: nothing is written through a link or into a shared file."""
    clear(path)
    path.write_bytes(damaged)


def clear(path: Path) -> None:
    """Nothing is at `path` any more."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
