"""The documents that `curate --exclude` leaves out, by a list: an id a line, `#` for a comment.

`curate` leaves them out, and `resolve` asks whether a training that was begun may still be finished.
"""

from __future__ import annotations

import re

from yanmo.common.errors import DataError
from yanmo.common.given_file import MIB, given_text
from yanmo.options.shared import StoreOptions
from yanmo.options.values import brief
from yanmo.store.manifest import digest
from yanmo.store.opening import store_of

_MOST_BYTES = 64 * MIB
"""Of a file; a million ids. An object of a bucket may have half of it (`ObjectStore.read`)."""
_ID = re.compile(r"[0-9a-f]{64}")


def excluded_ids(place: str, options: StoreOptions) -> frozenset[str]:
    """Return the ids in a file of this machine, or in the object at a URI; none where `place` is empty.

    Args:
        options: say where an object's server is.

    Raises:
        DataError: it cannot be read, or a line is not an id.
    """
    if not place:
        return frozenset()
    what, shown = "a text file with one id per line", f"--exclude {place}"
    found = set()
    for number, line in enumerate(_text(place, what, shown, options).splitlines(), 1):
        name = line.partition("#")[0].strip()
        if name and not _ID.fullmatch(name):
            raise DataError(
                f"--exclude {place}:{number}: expected an id of 64 hexadecimal digits, got {brief(name)}"
            )
        found.add(name)
    return frozenset(found - {""})


def digest_of(ids: frozenset[str]) -> str:
    """Return what stands for the list in a key; "" for an empty one."""
    return digest(sorted(ids)) if ids else ""


def _text(place: str, what: str, shown: str, options: StoreOptions) -> str:
    try:
        if "://" not in place:
            return given_text(place, what, shown=shown, most_bytes=_MOST_BYTES)
        folder, _, name = place.rpartition("/")
        return store_of(options, folder).read(name)[0].decode("utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"{shown}: expected {what}: no such file") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{shown}: expected {what}, in UTF-8: {error}") from error
