"""What decided `auto`: the record that keeps a key from depending on the machine that happens to read it.

    <store>/runs/<stage>/auto/<name>.json    created only if absent; the first of two machines wins

The name is the key of the options as they were given (`auto` where nobody gave one) and of the inputs'
digests. Whoever gives the same options and inputs, on whatever machine, finds the record and takes what it
says. gc removes it with the output and the work of its key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from yanmo.common.errors import DataError, StorageError
from yanmo.store.objects import AlreadyExists, ObjectStore, overwrite
from yanmo.store.schema import OtherSchema, parse, utc_now

SCHEMA = "yanmo.auto/1"
_MAX_BYTES = 65_536
_TRIES = 20
_KEY = re.compile(r"[0-9a-f]{64}\Z")
Scalar = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class AutoRecord:
    """What the machine that came first was, and which values it gave to options that enter the key."""

    stage: str
    key: str
    """The output's, which they make with the options that were given."""
    options: dict[str, Scalar]
    machine: dict[str, Any] = field(default_factory=dict)
    """What was seen of the machine that decided: all else is made from it at each start."""
    run_id: str = ""
    created_at: str = field(default_factory=utc_now)
    schema: str = SCHEMA

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> AutoRecord:
        """Parse what `to_json` wrote.

        Raises:
            ValueError: it is damaged, or of a schema that this version does not know.
        """
        values = parse(data, SCHEMA, _MAX_BYTES)
        wrong = sorted(values.keys() ^ cls.__dataclass_fields__.keys())
        if wrong:
            raise ValueError(f"has too much or lacks: {', '.join(wrong)}")
        texts = [values[name] for name in ("stage", "key", "run_id", "created_at")]
        if not all(isinstance(text, str) for text in texts) or not _KEY.match(values["key"]):
            raise ValueError("stage, key, run_id and created_at are not texts, or key is none")
        options, machine = values["options"], values["machine"]
        if not isinstance(options, dict) or not isinstance(machine, dict):
            raise ValueError("options and machine are not objects")
        if not all(isinstance(value, (str, int, float, bool)) for value in options.values()):
            raise ValueError("an option is no single value")
        return cls(**values)


def record_name(stage: str, digest: str) -> str:
    """Where the record lies that belongs to the options as given and the inputs, hashed as `digest`."""
    return f"runs/{stage}/auto/{digest}.json"


def is_auto_record(name: str) -> bool:
    """Whether an object of the store is such a record, by its name."""
    parts = name.split("/")
    return len(parts) == 4 and parts[0] == "runs" and parts[2] == "auto" and not parts[3].startswith(".")


def read_record(
    store: ObjectStore, name: str, check: Callable[[AutoRecord], None] = lambda record: None
) -> AutoRecord | None:
    """The record `name`, or None where there is none.

    Args:
        check: raises ValueError where the record is not the one that was looked for.

    Raises:
        DataError: it is damaged or misplaced; says what to do.
    """
    try:
        data, _ = store.read(name)
    except FileNotFoundError:
        return None
    try:
        record = AutoRecord.from_json(data)
        check(record)
    except OtherSchema as error:  # whole: nothing is to be put in its place
        raise DataError(f"{store.uri}/{name}: {error}") from error
    except ValueError as error:
        raise DataError(
            f"{store.uri}/{name}: the record of what `auto` became is damaged ({error}); give the options "
            "themselves, or run once with --auto-again, which puts what this machine finds in its place"
        ) from error
    return record


def keep_first(
    store: ObjectStore, name: str, record: AutoRecord, check: Callable[[AutoRecord], None]
) -> AutoRecord:
    """Write the record unless there is one; the one that counts then."""
    for _ in range(_TRIES):
        try:
            store.create(name, record.to_json())
            return record
        except AlreadyExists:
            found = read_record(store, name, check)
            if found is not None:
                return found
    raise StorageError(f"{store.uri}/{name}: came and went under {_TRIES} tries; try again")


def put_in_place(store: ObjectStore, name: str, record: AutoRecord) -> AutoRecord:
    """Write the record over the one that is there, if any, whatever that says."""
    overwrite(store, name, record.to_json())
    return record
