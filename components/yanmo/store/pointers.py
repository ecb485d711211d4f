"""Pointers: the few names that move. Latest success of a channel, and its champion."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from yanmo.common.errors import DataError, UsageError
from yanmo.common.names import PARTS, STAGES, maker_of, name_problems
from yanmo.common.shell_words import shell_line
from yanmo.store.manifest import MAX_REFERENCE_BYTES, REFERENCE_SCHEMA, Reference
from yanmo.store.objects import AlreadyExists, Changed, ObjectStore, amend
from yanmo.store.output import Output, open_reference
from yanmo.store.record import OtherSchema, parse

POINTED = {
    **{made: made for made in (*STAGES, *PARTS)},
    "champion": "train",
    **{
        f"{of}_evaluation{part}": made
        for of in ("champion", "base")
        for part, made in (("", "evaluate"), ("_writing", "writing"), ("_contamination", "contamination"))
    },
}
"""Pointer -> the stage or part whose outputs it names. Pointers of other names (`--pointer`) may name any."""
RECORD_SCHEMA = "yanmo.promotion/1"
"""Records of a channel's history: `promote` writes them, tools read them."""
RECORDED = {
    "model": "train",
    "evaluation": "evaluate",
    "verdict": "promote",
    "previous": "train",
    "compared_with": "evaluate",
}
"""Field of a record -> the stage of what it names."""
_MEND = {
    "evaluation_set": (
        "restore it, or name the channel's own set once: `yanmo curate --evaluation-set evaluation_set/KEY` "
        "sets it again (`yanmo store ls --stage evaluation_set` lists the keys). A new one would let what "
        "was tested so far into training"
    ),
    "champion": (
        "restore it, or delete the file: `yanmo promote rollback --why damaged`, with --store and --channel "
        "of this file, then brings back the last of the history"
    ),
}
"""What to do about a damaged pointer that is read before its stage would set it again, or by others only."""


def pointer_name(channel: str, name: str) -> str:
    """Return the name of the object that is the pointer `name` of a channel.

    Raises:
        UsageError: a channel or pointer name that cannot be part of an object's name.
    """
    for what, part in (("--channel", channel), ("--pointer", name)):
        for problem in name_problems(what, part):
            raise UsageError(problem)
    return f"pointers/{channel}/{name}.json"


def place_flags(store: ObjectStore, channel: str) -> str:
    """Return `--store URI --channel NAME`, for a command in a message: pasted, it is about the same place."""
    return shell_line(["--store", store.uri, "--channel", channel])


def read_pointer(store: ObjectStore, channel: str, name: str) -> Reference | None:
    """Return the reference in the pointer, or None when it was never set.

    Raises:
        DataError: it holds anything but a reference, or one to an output of another stage.
    """
    path = pointer_name(channel, name)
    try:
        data, _ = store.read(path)
    except FileNotFoundError:
        return None
    return parse_pointer(data, name, f"{store.uri}/{path}")


def parse_pointer(data: bytes, name: str, where: str) -> Reference:
    """Return the reference in the pointer `name`, read from `where`; raises as `read_pointer`."""
    reference = Reference.from_json(data, where, _mend(name))
    if name in POINTED:
        check_stage(reference, (POINTED[name],), where, _mend(name))
    return reference


def _mend(name: str) -> str:
    """Return what to do where the pointer `name` is damaged or exchanged."""
    if name in _MEND:
        return _MEND[name]
    if name not in POINTED:
        return "restore it, or delete the file"
    made = POINTED[name]
    pointer = "" if name == made else f" with --pointer {name.removesuffix(f'_{made}')}"
    return f"restore it, or run `yanmo {maker_of(made)}` again{pointer}"


def check_stage(
    reference: Reference, stages: Collection[str], where: str, mend: str = "restore it", *, given: str = ""
) -> None:
    """Raise DataError unless `reference`, read from `where`, is to an output of one of `stages`.

    Args:
        mend: what to do, where it is a file of the store.
        given: the option or word that was given, where it is no file of the store.
    """
    if reference.stage in stages:
        return
    first = min(stages)
    found = f"{where}: names {reference.stage}/{reference.key[:12]}, expected an output of "
    found += " or ".join(sorted(stages))
    if given:
        newest = ", or leave the flag out for the channel's newest" if given.startswith("--") else ""
        raise DataError(f"{found}; give {first}/KEY{newest}")
    raise DataError(f"{found}: it was exchanged with another file or restored to the wrong place; {mend}")


def open_named(store: ObjectStore, reference: Reference, where: str) -> Output:
    """Return the output that `reference`, read from `where`, pins.

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
        DataError: another version of Yanmo wrote it.
    """
    path, data = pointer_name(channel, name), reference.to_json().encode()

    def moved(current: bytes | None) -> bytes:
        if current is not None:
            _refuse_other(current, f"{store.uri}/{path}")
        return data

    amend(store, path, moved)


def check_movable(store: ObjectStore, channel: str, name: str) -> None:
    """Raise what `move_pointer` would raise for what lies there now: something else, or another version's."""
    path = pointer_name(channel, name)
    with contextlib.suppress(FileNotFoundError):
        _refuse_other(store.read(path)[0], f"{store.uri}/{path}")


def _refuse_other(data: bytes, where: str) -> None:
    """Raise DataError where another version wrote the pointer; whatever else is damaged may be mended."""
    try:
        parse(data, REFERENCE_SCHEMA, MAX_REFERENCE_BYTES)
    except OtherSchema as error:
        raise DataError(f"{where}: {error}") from error
    except ValueError:
        pass


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
            if parse_pointer(current, name, f"{store.uri}/{path}") != expected:
                return False
            store.replace(path, data, version)
    except (AlreadyExists, Changed, FileNotFoundError):
        return False
    return True
