"""What decided `auto`: the record that keeps a key from depending on the machine that happens to read it.

    <store>/runs/<stage>/auto/<name>.json    created only if absent; the first of two machines wins

The name is the key of the options as they were given (`auto` where nobody gave one) and of the inputs'
digests. Whoever gives the same options and inputs, on whatever machine, finds the record and takes what it
says. gc removes it with the output and the work of its key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from yanmo.common.errors import DataError
from yanmo.store.objects import ObjectStore
from yanmo.store.output import KEY
from yanmo.store.record import Record
from yanmo.store.schema import utc_now

Scalar = str | int | float | bool
_MEND = (
    "give the options that were `auto` themselves, or delete this record: the next run puts what its "
    "machine finds in its place"
)


@dataclass(frozen=True, kw_only=True)
class AutoRecord:
    """Which values the machine that came first gave to options, of which one enters the key."""

    stage: str
    key: str
    """The output's, which they make with the options that were given."""
    options: dict[str, Scalar]
    run_id: str = ""
    created_at: str = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        if not KEY.fullmatch(self.key):
            raise ValueError("key is none")


AUTO_RECORD = Record("yanmo.auto/1", AutoRecord, _MEND)


def record_name(stage: str, digest: str) -> str:
    """Return the name of the record for options as given and inputs, hashed as `digest`."""
    return f"runs/{stage}/auto/{digest}.json"


def is_auto_record(name: str) -> bool:
    """Return whether an object of the store is such a record, by its name."""
    parts = name.split("/")
    return len(parts) == 4 and parts[0] == "runs" and parts[2] == "auto" and not parts[3].startswith(".")


def read_record(
    store: ObjectStore, name: str, check: Callable[[AutoRecord], None] = lambda record: None
) -> AutoRecord | None:
    """Return the record `name`, or None where there is none.

    Args:
        check: raises ValueError where the record is not the one that was looked for.

    Raises:
        DataError: it is damaged or misplaced; says what to do.
    """
    found = AUTO_RECORD.read(store, name)
    return found and _checked(found, check, f"{store.uri}/{name}")


def keep_first(
    store: ObjectStore, name: str, record: AutoRecord, check: Callable[[AutoRecord], None]
) -> AutoRecord:
    """Write the record unless there is one; the one that counts then. Raises as `read_record`."""
    return _checked(AUTO_RECORD.create(store, name, record), check, f"{store.uri}/{name}")


def _checked(record: AutoRecord, check: Callable[[AutoRecord], None], where: str) -> AutoRecord:
    try:
        check(record)
    except ValueError as error:
        raise DataError(f"{where}: damaged: {error}; {_MEND}") from error
    return record
