"""Pointers: the few names that move. Latest success of a channel, and its champion."""

from __future__ import annotations

import re

from yanmo.common.errors import DataError, StorageError, UsageError
from yanmo.common.store.manifest import Reference
from yanmo.common.store.objects import AlreadyExists, Changed, ObjectStore
from yanmo.common.store.output import Output, open_reference

_TRIES = 20
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")


def pointer_name(channel: str, name: str) -> str:
    """Where the pointer `name` of a channel lies.

    Raises:
        UsageError: a channel or pointer name that cannot be part of an object's name.
    """
    for what, part in (("--channel", channel), ("--pointer", name)):
        if not _PART.match(part):
            raise UsageError(f"{what} {part[:100]!r}: expected up to 100 letters, digits, - or _")
    return f"pointers/{channel}/{name}.json"


def read_pointer(store: ObjectStore, channel: str, name: str) -> Reference | None:
    """What the pointer names, or None when it was never set."""
    path = pointer_name(channel, name)
    try:
        data, _ = store.read(path)
    except FileNotFoundError:
        return None
    return Reference.from_json(data, f"{store.uri}/{path}")


def open_named(store: ObjectStore, reference: Reference, where: str) -> Output:
    """The output that `reference`, read from `where`, pins.

    Raises:
        DataError: as `open_reference`; names `where` too, as it may be the one that is damaged.
    """
    try:
        return open_reference(store, reference)
    except DataError as error:
        raise DataError(f"{error}. The reference is from {where}, which may be damaged itself") from error


def create_pointer(store: ObjectStore, channel: str, name: str, reference: Reference) -> Reference:
    """Set the pointer unless it is set; returns what it names afterwards."""
    try:
        store.create(pointer_name(channel, name), reference.to_json().encode())
    except AlreadyExists:
        found = read_pointer(store, channel, name)
        assert found is not None
        return found
    return reference


def move_pointer(store: ObjectStore, channel: str, name: str, reference: Reference) -> None:
    """Make the pointer name `reference`; the last of two movers wins.

    Raises:
        StorageError: it changed under every try.
    """
    path, data = pointer_name(channel, name), reference.to_json().encode()
    for _ in range(_TRIES):
        try:
            current, version = store.read(path)
            if current != data:
                store.replace(path, data, version)
            return
        except FileNotFoundError:
            try:
                store.create(path, data)
                return
            except AlreadyExists:
                continue
        except Changed:
            continue
    raise StorageError(f"{store.uri}/{path}: changed under {_TRIES} tries to move it; try again")


def swap_pointer(
    store: ObjectStore, channel: str, name: str, expected: Reference | None, new: Reference
) -> bool:
    """Make the pointer name `new` only if it still names `expected`; whether it did."""
    path, data = pointer_name(channel, name), new.to_json().encode()
    try:
        if expected is None:
            store.create(path, data)
        else:
            current, version = store.read(path)
            if Reference.from_json(current, f"{store.uri}/{path}") != expected:
                return False
            store.replace(path, data, version)
    except (AlreadyExists, Changed, FileNotFoundError):
        return False
    return True
