"""From what a user typed to the outputs a stage reads."""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from yanmo.common.errors import DataError, UsageError
from yanmo.options.fields import NONE as NONE
from yanmo.options.fields import StageOptions, flag, option_fields
from yanmo.store.manifest import MAX_REFERENCE_BYTES, Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, find_output
from yanmo.store.pointers import MADE_BY, POINTED, check_stage, open_named, pointer_name, read_pointer

log = logging.getLogger(__name__)


def resolve_inputs(store: ObjectStore, options: StageOptions) -> dict[str, Output | None]:
    """Every input of a stage, opened: its own flag first, else what `--inputs` says.

    Raises:
        DataError: a required input is not to be had; says what to run.
    """
    given = _inputs_file(options.inputs)
    known = [field.name for field in option_fields(type(options), "input")]
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise UsageError(
            f"--inputs {options.inputs}: no input {', '.join(unknown)}; expected {', '.join(known)}"
        )
    result: dict[str, Output | None] = {}
    for field in option_fields(type(options), "input"):
        value = getattr(options, field.name) or given.get(field.name, "latest")
        output = _resolve(store, options.channel, field, value)
        if output is None and not field.metadata["optional"]:
            stages = field.metadata["stages"]
            raise DataError(
                f"input {field.name} is missing: {flag(field.name)} is {value!r} and channel "
                f"{options.channel!r} of {store.uri} has no output of {' or '.join(stages)}; run "
                f"`yanmo {_maker(stages[0])}` first, or give {flag(field.name)}"
            )
        result[field.name] = output
    return result


def _maker(pointer: str) -> str:
    """The stage whose run moves `pointer`, or makes the part that it names."""
    made = POINTED.get(pointer, pointer)
    return MADE_BY.get(made, made)


def _inputs_file(value: str) -> dict[str, str]:
    if value == "latest":
        return {}
    try:
        references = json.loads(Path(value).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # ValueError: not JSON, not UTF-8, a NUL in the name
        raise UsageError(f"--inputs {value}: expected 'latest' or a JSON file: {error}") from error
    if not isinstance(references, dict):
        raise UsageError(f"--inputs {value}: expected a JSON object of input name -> reference")
    return {n: v if isinstance(v, str) else json.dumps(v) for n, v in references.items()}


def _resolve(store: ObjectStore, channel: str, field: dataclasses.Field[Any], value: str) -> Output | None:
    if value == NONE:
        return None
    if value == "latest":
        for stage in field.metadata["stages"]:
            pointer = read_pointer(store, channel, stage)
            if pointer is not None:
                return open_named(store, pointer, pointer_name(channel, stage))
        return None
    reference = parse_reference(store, value, flag(field.name), _taken(field))
    shown = value if len(value) <= 200 else f"{flag(field.name)} {value[:200]}..."
    return None if reference is None else open_named(store, reference, shown)


def _taken(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """The stages whose outputs an input takes by name; empty where its pointers are not in `POINTED`."""
    stages = field.metadata["stages"]
    if not all(name in POINTED for name in stages):
        return ()
    return tuple(dict.fromkeys([*(POINTED[name] for name in stages), *field.metadata.get("also", ())]))


def _file_bytes(value: str) -> bytes | None:
    """What the file called `value` begins with; None where `value` names no file."""
    try:
        with Path(value).open("rb") as file:
            return file.read(MAX_REFERENCE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise


def parse_reference(
    store: ObjectStore, value: str, where: str, stages: Sequence[str] = ()
) -> Reference | None:
    """The reference that `value` gives: JSON, a file holding it, or `<stage>/<key>`; None for none.

    Args:
        stages: those of whose outputs it may be; empty for any.

    Raises:
        DataError: it gives none, or one to an output of another stage.
    """
    reference = _given(store, value, where)
    if reference is not None and stages:
        shown = value if len(value) <= 200 and not value.lstrip().startswith("{") else ""
        check_stage(reference, stages, f"{where} {shown}".strip())
    return reference


def _given(store: ObjectStore, value: str, where: str) -> Reference | None:
    if value.lstrip().startswith("{"):
        return Reference.from_json(value, where)
    data = _file_bytes(value)
    if data is not None:
        return None if data.strip() == NONE.encode() else Reference.from_json(data, value)
    stage, _, key = value.partition("/")
    found = find_output(store, stage, key) if key and "/" not in key else None
    if found is None:
        raise DataError(
            f"{where} {value!r}: expected a reference file, <stage>/<key> of an output in "
            f"{store.uri}, 'latest' or 'none'"
        )
    return found.reference
