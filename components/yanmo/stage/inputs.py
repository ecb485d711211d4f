"""From what a user typed to the outputs a stage reads."""

from __future__ import annotations

import dataclasses
import errno
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from yanmo.common.errors import DataError, UsageError
from yanmo.common.given_file import given_json, read_bounded
from yanmo.options.fields import NONE, flag, option_fields
from yanmo.options.shared import StageOptions
from yanmo.options.values import brief
from yanmo.store.manifest import MAX_REFERENCE_BYTES, Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import SHORTEST_KEY, Output, find_by_digits
from yanmo.store.pause import PausedOutput
from yanmo.store.pointers import MADE_BY, POINTED, check_stage, open_named, pointer_name, read_pointer
from yanmo.store.runs.run_record import read_run


class PausedInput(DataError):
    """What an input names was not finished: its stage paused."""

    def __init__(self, where: str, paused: PausedOutput) -> None:
        super().__init__(
            f"{where}: {paused}: it is no output yet; run the same {paused.stage} again, to its end"
        )
        self.paused = paused


_NO_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ENXIO}


class Inputs(NamedTuple):
    """What a stage reads."""

    outputs: dict[str, Output | None]
    """Input -> its output; None for an optional one that there is not."""
    left_out: frozenset[str]
    """Those that were given as `none`, by whatever says so; the others without an output were not found."""


def resolve_inputs(store: ObjectStore, options: StageOptions) -> Inputs:
    """Every input of a stage, opened: its own flag first, else what `--inputs` says.

    Raises:
        PausedInput: the stage that makes one of them paused.
        DataError: a required input is not to be had; says what to run.
    """
    fields = list(option_fields(type(options), "input"))
    run = _of_run(store, options)
    given = {} if run is not None else _inputs_file(options.inputs, [field.name for field in fields])
    result: dict[str, Output | None] = {}
    left_out = set()
    for field in fields:
        own, where = getattr(options, field.name), flag(field.name)
        if not own and field.name in given:
            where += f" of --inputs {options.inputs}"
        pointers = [(options.channel, name) for name in field.metadata["stages"]]
        of_run = next((run[name] for _, name in pointers if name in run), None) if run else None
        if of_run and not own:
            given[field.name], where = of_run.to_json(), f"{where} of --inputs {options.inputs}"
        value = own or given.get(field.name, "latest")
        output = open_input(store, value, where, stages=_taken(field), pointers=pointers)
        if output is None and not field.metadata["optional"]:
            names = field.metadata["stages"]
            made = POINTED.get(names[0], names[0])
            raise DataError(
                f"input {field.name} is missing: {flag(field.name)} is {value!r} and channel "
                f"{options.channel!r} of {store.uri} has no output of {' or '.join(names)}; run "
                f"`yanmo {MADE_BY.get(made, made)}` first, or give {flag(field.name)}"
            )
        result[field.name] = output
        if output is None and value != "latest":
            left_out.add(field.name)
    return Inputs(result, frozenset(left_out))


def open_input(
    store: ObjectStore,
    value: str,
    where: str,
    *,
    stages: Sequence[str] = (),
    pointers: Sequence[tuple[str, str]] = (),
) -> Output | None:
    """The output that `value` names, opened; None where it names none. Here alone is decided how it is found.

    Args:
        value: `none`; `latest`, which is the first of `pointers` that is set; a reference as JSON; a file
            that holds one, or `none` (a KFP artifact); or `<stage>/<key>`, the first digits of which
            are enough.
        where: what `value` was given to.
        stages: those of whose outputs it may be; empty for any.
        pointers: channel and name of each.

    Raises:
        PausedInput: its stage paused and passed that on.
        DataError: it is none of these, or is missing or of another stage.
    """
    reference, is_json, is_short = None, value.lstrip().startswith("{"), len(value) <= 200
    origin = where if is_json else value if is_short else f"{where} {value[:200]}..."
    if value == "latest":
        named = ((read_pointer(store, *pointer), pointer_name(*pointer)) for pointer in pointers)
        reference, origin = next((found for found in named if found[0]), (None, ""))
    elif is_json:
        reference = _reference_in(value, where)
    elif value != NONE:
        body = _file_bytes(value)
        if body is None:
            reference = _committed(store, value, where)
        elif body.strip() != NONE.encode():
            reference = _reference_in(body, value)
    if reference is None:
        return None
    if stages:
        check_stage(reference, stages, f"{where} {value}" if is_short and not is_json else where)
    return open_named(store, reference, origin)


def _of_run(store: ObjectStore, options: StageOptions) -> dict[str, Reference] | None:
    """Pointer -> what a stage of the run `--inputs run:ID` made or found; None where it names no run.

    What that run has not (the tokenize stage did not run in a rerun of one stage) is the channel's latest.
    """
    word, colon, run_id = options.inputs.partition(":")
    if word != "run" or not colon:
        return None
    found = read_run(store, options.channel, run_id)
    if found is None:
        raise UsageError(
            f"--inputs {brief(options.inputs)}: channel {options.channel!r} of {store.uri} has no run of "
            "that id; `yanmo store ls --json` shows those that are recorded, as CHANNEL/runs/ID"
        )
    return found


def _reference_in(text: str | bytes, where: str) -> Reference:
    paused = PausedOutput.from_json(text)
    if paused:
        raise PausedInput(where, paused)
    return Reference.from_json(text, where)


def _inputs_file(value: str, known: Sequence[str]) -> dict[str, str]:
    """Input -> what the file `--inputs` says of it."""
    what = "'latest', run:ID or a JSON file of input names and references"
    shown = f"--inputs {brief(value)}"
    try:
        said = {} if value in ("latest", "") else given_json(value, what, shown=shown, wrong=UsageError)
    except FileNotFoundError as error:
        raise UsageError(f"{shown}: expected {what}: no such file") from error
    if not isinstance(said, dict):
        raise UsageError(f"{shown}: expected a JSON object of input name -> reference")
    if unknown := sorted(said.keys() - set(known)):
        raise UsageError(f"{shown}: no input {', '.join(unknown)}; expected {', '.join(known)}")
    return {name: one if isinstance(one, str) else json.dumps(one) for name, one in said.items()}


def _taken(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """The stages whose outputs an input takes by name; empty where its pointers are not in `POINTED`."""
    named = [POINTED.get(name, "") for name in field.metadata["stages"]]
    return tuple(dict.fromkeys([*named, *field.metadata.get("also", ())])) if all(named) else ()


def _file_bytes(value: str) -> bytes | None:
    """What the file called `value` begins with; None where `value` names no file."""
    try:
        return read_bounded(value, MAX_REFERENCE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name, a silent pipe
        if isinstance(error, OSError) and error.errno not in _NO_FILE:
            raise
        return None


def _committed(store: ObjectStore, value: str, where: str) -> Reference:
    """The reference to the output `<stage>/<key>`."""
    stage, _, key = value.partition("/")
    found = find_by_digits(store, stage, key)
    if found is None:
        raise DataError(
            f"{where} {value!r}: expected a reference file, <stage>/<key> of an output in "
            f"{store.uri} (the first {SHORTEST_KEY} digits of the key are enough), 'latest' or 'none'"
        )
    return found.reference
