"""Finds the committed output that a person or a pipeline names: one grammar for all that takes one.

train/1bcc4416, 1bcc4416   an output's key, of which the first 4 digits are enough
demo/champion              what a pointer of a channel names
demo                       a channel: its champion, or its newest output of the stage that is wanted
latest, champion           the same of the command's own channel
run:ID                     what that run of the command's own channel made or found
FILE, {"schema": ...}      a reference, as a pointer or an artifact of KFP holds it
none                       nothing
(left out, of a model)     the command's own channel
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from yanmo.common.errors import DataError, UsageError
from yanmo.common.given_file import read_bounded
from yanmo.common.names import NONE, name_problems
from yanmo.common.shell_words import shell_line
from yanmo.common.words import some_of
from yanmo.store.manifest import MAX_REFERENCE_BYTES, Reference
from yanmo.store.objects import ObjectStore, is_name
from yanmo.store.output import SHORTEST_KEY, Output, PausedOutput, find_by_digits
from yanmo.store.pointers import POINTED, check_stage, open_named, pointer_name, read_pointer
from yanmo.store.runs.run_record import read_run

log = logging.getLogger(__name__)
LATEST, CHAMPION, MODEL = "latest", "champion", "train"
CARRIED = "carries"
"""Field of a reference that one task of a pipeline hands to another: what the next one needs beside it."""
_NO_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ENXIO}
_SHOWN = 200
_Found = tuple[Reference | None, str]
"""What a value names, and where that stands, for a message."""


class PausedInput(DataError):
    """What an input names was not finished: its stage paused."""

    def __init__(self, where: str, paused: PausedOutput) -> None:
        super().__init__(
            f"{where}: {paused}: it is no output yet; run the same {paused.stage} again, to its end"
        )
        self.paused = paused


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What an option takes."""

    where: str
    """The option, for messages."""
    stages: tuple[str, ...] = ()
    """Those of whose outputs it may be; empty for any."""
    pointers: tuple[str, ...] = ()
    """Pointers of a channel that name such outputs, in order of preference; empty where it may be any."""
    channel: str = ""
    """The command's own channel."""
    also: str = ""
    """What else the option takes, for messages."""

    def __str__(self) -> str:
        kind = self.stages[0] if self.stages else "STAGE"
        pointer = CHAMPION if kind == MODEL else self.pointers[0] if self.pointers else "POINTER"
        names = "CHANNEL, latest, " + ("champion, " if kind == MODEL else "") if self.pointers else ""
        runs = "run:ID, " if self.pointers else ""
        return (
            f"{self.also}{kind}/KEY (the first {SHORTEST_KEY} digits are enough), CHANNEL/{pointer}, "
            f"{names}{runs}or a file that holds a reference"
        )


def find_named(store: ObjectStore, value: str, wanted: Wanted) -> Output | None:
    """Return the output that `value` names, opened; None for `none`, and for `latest` of nothing yet.

    Raises:
        PausedInput: its stage paused and passed that on.
        UsageError: it can name nothing, or names several.
        DataError: what it names is missing, damaged or of another stage.
    """
    reference, origin = _named(store, value, wanted)
    if reference is None:
        return None
    is_short = len(value) <= _SHOWN and not value.lstrip().startswith("{")
    if wanted.stages:
        where = f"{wanted.where} {value}" if is_short else wanted.where
        check_stage(reference, wanted.stages, where, given=wanted.where)
    return open_named(store, reference, origin)


def _named(store: ObjectStore, value: str, wanted: Wanted) -> _Found:
    if value.lstrip().startswith("{"):
        return _reference_in(value, wanted.where), wanted.where
    if value == NONE:
        return None, ""
    if not value and MODEL in wanted.stages:
        found = _of_channel_alone(store, wanted.channel, wanted)
        if found is None:
            raise none_yet(store, wanted.channel, MODEL, wanted, value)
        return found
    if value == LATEST:
        return next(_pointed(store, wanted.channel, _some(wanted, value)), (None, ""))
    if value == CHAMPION and MODEL in wanted.stages:
        return _of_channel(store, wanted.channel, (CHAMPION,), wanted, value)
    if value.startswith("run:"):
        return _of_run(store, value.removeprefix("run:"), wanted, value), value
    body = _file_bytes(value)
    if body is not None:
        none = body.strip() == NONE.encode()
        return None if none else _reference_in(body, value), f"{value[:_SHOWN]}"
    return _by_name(store, value, wanted)


def _by_name(store: ObjectStore, value: str, wanted: Wanted) -> _Found:
    """Return the output of a name that is neither a word such as `latest` nor a file."""
    name = value.removeprefix("pointers/").removeprefix("cas/").removesuffix("/MANIFEST.json")
    first, slash, second = name.removesuffix(".json").partition("/")
    if not is_name(name) or "/" in second or (slash and not second):
        raise UsageError(f"{_said(value, wanted)}: expected {wanted}; there is no such file")
    if not slash:
        return _of_one_word(store, first, wanted, value)
    if not name_problems("", first) and not name_problems("", second):
        found = next(_pointed(store, first, (second,)), None)
        if found:
            return found
    output = find_by_digits(store, first, second)
    if output is not None:
        return output.reference, value
    if second in POINTED and not name_problems("", first):
        return _of_channel(store, first, (second,), wanted, value)
    raise DataError(
        f"{_said(value, wanted)}: {store.uri} has no such output, and no such pointer; expected {wanted}. "
        "`yanmo store ls` shows what there is"
    )


def _of_one_word(store: ObjectStore, word: str, wanted: Wanted, value: str) -> _Found:
    """Return a channel, or a key alone."""
    if wanted.pointers and not name_problems("", word):
        found = _of_channel_alone(store, word, wanted)
        if found:
            return found
    stages = wanted.stages or wanted.pointers or tuple(sorted(set(POINTED.values())))
    outputs = list(filter(None, (find_by_digits(store, stage, word) for stage in stages)))
    if len(outputs) > 1:
        raise UsageError(f"{_said(value, wanted)}: could be {' or '.join(map(str, outputs))}: name the stage")
    if not outputs and not name_problems("", word) and next(iter(store.list(f"pointers/{word}")), None):
        raise none_yet(store, word, _some(wanted, value)[0], wanted, value)
    if not outputs:
        raise DataError(
            f"{_said(value, wanted)}: {store.uri} has no such key, and no channel of that name with one; "
            f"expected {wanted}. `yanmo store ls` shows what there is, --store names another store"
        )
    return outputs[0].reference, value


def _of_channel_alone(store: ObjectStore, channel: str, wanted: Wanted) -> _Found | None:
    """Return what the name of a channel alone stands for; None where it has nothing of that kind."""
    found = next(_pointed(store, channel, _preferred(wanted)), None)
    if found and MODEL in wanted.stages and not found[1].endswith(f"/{CHAMPION}.json"):
        log.info("channel %s has no champion yet; taking its latest model", channel)
    return found


def _of_channel(
    store: ObjectStore, channel: str, pointers: tuple[str, ...], wanted: Wanted, value: str
) -> _Found:
    found = next(_pointed(store, channel, pointers), None)
    if found is None:
        raise none_yet(store, channel, pointers[0], wanted, value)
    return found


def none_yet(store: ObjectStore, channel: str, pointer: str, wanted: Wanted, value: str) -> DataError:
    """Return the error that a channel has nothing that `pointer` would name; says which channels have."""
    listed = (info.name.split("/") for info in store.list("pointers"))
    others = [parts[1] for parts in listed if parts[2:] == [f"{pointer}.json"] and parts[1] != channel]
    one = f"{pointer} output" if POINTED.get(pointer) == pointer else pointer
    hint = f"; a channel that has one: {some_of(others)}" if others else ""
    return DataError(
        f"{_said(value, wanted)}: channel {channel!r} of {store.uri} has no {one} yet. Make one first "
        f"(`yanmo run --channel {channel} {shell_line(['--store', store.uri])}`, or `make demo` for the "
        f"channel demo), or give {wanted}{hint}"
    )


def _of_run(store: ObjectStore, run_id: str, wanted: Wanted, value: str) -> Reference:
    run = read_run(store, wanted.channel, run_id) if run_id else None
    if run is None:
        raise UsageError(
            f"{_said(value, wanted)}: channel {wanted.channel!r} of {store.uri} has no run of that id; "
            "`yanmo store ls --json` shows those that are recorded, as CHANNEL/runs/ID"
        )
    found = next((run[name] for name in _some(wanted, value) if name in run), None)
    if found is None:
        made = ", ".join(f"{each.stage}/{each.key[:12]}" for each in run.values()) or "nothing"
        raise DataError(f"{_said(value, wanted)}: that run made no such output; it made {made}")
    return found


def _pointed(store: ObjectStore, channel: str, pointers: tuple[str, ...]) -> Iterator[tuple[Reference, str]]:
    for name in pointers:
        reference = read_pointer(store, channel, name)
        if reference is not None:
            yield reference, pointer_name(channel, name)


def _some(wanted: Wanted, value: str) -> tuple[str, ...]:
    """Pointers of what is wanted.

    Raises:
        UsageError: it may be of any stage.
    """
    if not wanted.pointers:
        raise UsageError(f"{_said(value, wanted)}: of which stage? Give {wanted}")
    return wanted.pointers


def _preferred(wanted: Wanted) -> tuple[str, ...]:
    """Return the pointers that the name of a channel alone stands for, in order of preference."""
    return (CHAMPION, *wanted.pointers) if MODEL in wanted.stages else wanted.pointers


def _said(value: str, wanted: Wanted) -> str:
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
    return f"{wanted.where} {shown!r}" if value else wanted.where


def _reference_in(text: str | bytes, where: str) -> Reference:
    paused = PausedOutput.from_json(text)
    if paused:
        raise PausedInput(where, paused)
    return Reference.from_json(_parted(text)[0], where)


def carried_in(value: str, where: str) -> dict[str, Reference] | None:
    """Return what travels inside a reference that a task of a pipeline handed on: input -> reference.

    Args:
        value: the reference, or the file that holds it.

    Returns:
        None for a reference that carries nothing, and for anything else that names an output.

    Raises:
        DataError: what it carries is no reference.
    """
    carried = _parted(value if value.lstrip().startswith("{") else _file_bytes(value) or b"")[1]
    if carried is None:
        return None
    try:
        return {name: Reference.from_dict(one) for name, one in carried.items()}
    except (ValueError, AttributeError) as error:
        raise DataError(f"{where}: damaged: what it carries is no reference: {error}") from error


def _parted(text: str | bytes) -> tuple[str | bytes, Any]:
    """A reference without what it carries, and that; None where it carries nothing."""
    try:
        values = json.loads(text)
        carried = values.pop(CARRIED)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return text, None
    return json.dumps(values), carried


def _file_bytes(value: str) -> bytes | None:
    """Return the beginning of the file called `value`; None where `value` names no file."""
    try:
        return read_bounded(value, MAX_REFERENCE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name, a silent pipe
        if isinstance(error, OSError) and error.errno not in _NO_FILE:
            raise
        return None
