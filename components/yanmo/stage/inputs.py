"""From what a user typed to the outputs a stage reads."""

from __future__ import annotations

import dataclasses
from typing import Any

from yanmo.common.errors import DataError, UsageError
from yanmo.common.names import maker_of
from yanmo.options.fields import NONE, flag, option_fields
from yanmo.options.shared import StageOptions
from yanmo.options.values import brief
from yanmo.store.manifest import Reference
from yanmo.store.named import LATEST, Wanted, carried_in, find_named
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.store.pointers import POINTED, place_flags
from yanmo.store.runs.run_record import read_run


def resolve_inputs(store: ObjectStore, options: StageOptions) -> dict[str, Output | None]:
    """Return every input of a stage, opened: its own flag first, else what `--inputs` says.

    None for an optional one that there is not.

    Raises:
        PausedInput: the stage that makes one of them paused.
        DataError: a required input is not to be had; says what to run.
    """
    run = _of_run(store, options)
    result: dict[str, Output | None] = {}
    for field in option_fields(type(options), "input"):
        own, where, pointers = getattr(options, field.name), flag(field.name), field.metadata["stages"]
        value, carrier = own, field.metadata["inside"]
        if not own and (of_run := next((run[name] for name in pointers if name in run), None)):
            value, where = of_run.to_json(), f"{where} of --inputs {options.inputs}"
        value = value or LATEST
        carried = carried_in(getattr(options, carrier), flag(carrier)) if carrier and not own else None
        if carried is not None:
            value, where = NONE, f"{field.name} in {flag(carrier)}"
            if field.name in carried:
                value = carried[field.name].to_json()
        wanted = Wanted(where=where, stages=_taken(field), pointers=pointers, channel=options.channel)
        output = find_named(store, value, wanted)
        if output is None and not field.metadata["optional"]:
            made = POINTED.get(pointers[0], pointers[0])
            raise DataError(
                f"input {field.name} is missing: {flag(field.name)} is {value!r} and channel "
                f"{options.channel!r} of {store.uri} has no output of {' or '.join(pointers)}; run "
                f"`yanmo {maker_of(made)}` first, with {place_flags(store, options.channel)}, or give "
                f"{flag(field.name)}"
            )
        result[field.name] = output
    return result


def _of_run(store: ObjectStore, options: StageOptions) -> dict[str, Reference]:
    """Return pointer -> what a stage of the run `--inputs run:ID` made or found; nothing for `latest`.

    What that run has not (the tokenize stage did not run in a rerun of one stage) is the channel's latest.
    """
    if options.inputs in (LATEST, ""):
        return {}
    word, _, run_id = options.inputs.partition(":")
    if word != "run":
        raise UsageError(f"--inputs {brief(options.inputs)}: expected {LATEST} or run:ID")
    found = read_run(store, options.channel, run_id)
    if found is None:
        raise UsageError(
            f"--inputs {brief(options.inputs)}: channel {options.channel!r} of {store.uri} has no run of "
            "that id; `yanmo store ls --json` shows those that are recorded, as CHANNEL/runs/ID"
        )
    return found


def _taken(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """The stages whose outputs an input takes by name; empty where its pointers are not in `POINTED`."""
    named = [POINTED.get(name, "") for name in field.metadata["stages"]]
    return tuple(dict.fromkeys([*named, *field.metadata.get("also", ())])) if all(named) else ()
