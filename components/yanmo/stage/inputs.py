"""From what a user typed to the outputs a stage reads."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from yanmo.common.errors import DataError, UsageError
from yanmo.common.given_file import given_json
from yanmo.options.fields import NONE, flag, option_fields
from yanmo.options.shared import StageOptions
from yanmo.options.values import brief
from yanmo.store.manifest import Reference
from yanmo.store.named import LATEST, Wanted, carried_in, find_named
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.store.pointers import MADE_BY, POINTED
from yanmo.store.runs.run_record import read_run


class Inputs(NamedTuple):
    """What a stage reads."""

    outputs: dict[str, Output | None]
    """Input -> its output; None for an optional one that there is not."""
    left_out: frozenset[str]
    """Those that were given as `none`, by whatever says so; the others without an output were not found."""


def resolve_inputs(store: ObjectStore, options: StageOptions) -> Inputs:
    """Return every input of a stage, opened: its own flag first, else what `--inputs` says.

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
        pointers = field.metadata["stages"]
        of_run = next((run[name] for name in pointers if name in run), None) if run else None
        if of_run and not own:
            given[field.name], where = of_run.to_json(), f"{where} of --inputs {options.inputs}"
        value, carrier = own or given.get(field.name, LATEST), field.metadata["inside"]
        carried = carried_in(getattr(options, carrier), flag(carrier)) if carrier and not own else None
        if carried is not None:
            value, where = NONE, f"{field.name} in {flag(carrier)}"
            if field.name in carried:
                value = carried[field.name].to_json()
        wanted = Wanted(where=where, stages=_taken(field), pointers=pointers, channel=options.channel)
        output = find_named(store, value, wanted)
        if output is None and not field.metadata["optional"]:
            names = field.metadata["stages"]
            made = POINTED.get(names[0], names[0])
            raise DataError(
                f"input {field.name} is missing: {flag(field.name)} is {value!r} and channel "
                f"{options.channel!r} of {store.uri} has no output of {' or '.join(names)}; run "
                f"`yanmo {MADE_BY.get(made, made)}` first, or give {flag(field.name)}"
            )
        result[field.name] = output
        if output is None and value != LATEST and carried is None:
            left_out.add(field.name)
    return Inputs(result, frozenset(left_out))


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
