"""What decided `auto`: the record that keeps a key from depending on the machine that happens to read it.

    <store>/runs/<stage>/auto/<name>.json    created only if absent; the first of two machines wins

The name is the key of the options as they were given (`auto` where nobody gave one) and of the inputs'
digests. Whoever gives the same options and inputs, on whatever machine, finds the record and takes what it
says. gc removes it with the output and the work of its key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from yanmo.store.output import KEY
from yanmo.store.record import Record, utc_now

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

    def __post_init__(self) -> None:
        if not KEY.fullmatch(self.key):
            raise ValueError("key is none")


AUTO_RECORD = Record(
    "yanmo.auto/1",
    AutoRecord,
    "give the options that were `auto` themselves, or delete this record: the next run puts what its machine "
    "finds in its place",
)


def record_name(stage: str, digest: str) -> str:
    """Return the name of the record for options as given and inputs, hashed as `digest`."""
    return f"runs/{stage}/auto/{digest}.json"


def is_auto_record(name: str) -> bool:
    """Return whether an object of the store is such a record, by its name."""
    parts = name.split("/")
    return len(parts) == 4 and parts[0] == "runs" and parts[2] == "auto" and not parts[3].startswith(".")
