"""A record in a store: a dataclass as a small JSON object of one schema.

Read whole or refused (too long, of another version, a field more or less or of another type), created if
absent, changed by compare-and-swap. What a record must hold beyond the types of its fields its class checks
in `__post_init__` (ValueError).

Alternative not taken: pydantic. The types here are few, and both images stay free of another compiled
dependency.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from yanmo.store.objects import MAX_DOCUMENT_BYTES, ObjectStore, amend
from yanmo.store.schema import judging, parse

T = TypeVar("T")


@dataclass(frozen=True)
class Record(Generic[T]):
    """A schema, its dataclass, and what to do about a damaged one."""

    schema: str
    kind: type[T]
    mend: str = "restore it, or delete it"
    """What a person does about a damaged one, for messages."""

    def to_json(self, value: T) -> bytes:
        """Return the bytes of the object; half a character, which JSON has and UTF-8 has not, becomes `?`."""
        values = {"schema": self.schema, **dataclasses.asdict(value)}  # type: ignore[call-overload]
        text = json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False)
        return text.encode("utf-8", "replace") + b"\n"

    def parse(self, data: str | bytes, where: str) -> T:
        """Return the record in `data`, which was read from `where`.

        Raises:
            DataError: it is damaged, or of another version.
        """
        with judging(where, "damaged: {}", self.mend):
            values = parse(data, self.schema, MAX_DOCUMENT_BYTES)
            del values["schema"]
            value: T = built(self.kind, values)
            return value

    def read(self, store: ObjectStore, name: str) -> T | None:
        """Return the record `name`; None where there is none. Raises as `parse`."""
        try:
            data, _ = store.read(name)
        except FileNotFoundError:
            return None
        return self.parse(data, f"{store.uri}/{name}")

    def create(self, store: ObjectStore, name: str, value: T) -> T:
        """Write the record unless there is one; the one that counts then. Raises as `parse`."""
        found = self.change(store, name, lambda found: value if found is None else found)
        assert found is not None
        return found

    def write(self, store: ObjectStore, name: str, value: T) -> T:
        """Write the record over whatever is there."""
        amend(store, name, lambda current: self.to_json(value))
        return value

    def change(self, store: ObjectStore, name: str, change: Callable[[T | None], T | None]) -> T | None:
        """Write the record that `change` makes of it, and return that; what stays as it is is not written.

        Args:
            change: given None where there is no record; may be called again, where another was faster.

        Raises:
            StorageError: it changed under every try.
            DataError: what is there is damaged, or of another version.
        """
        result: T | None = None

        def changed(data: bytes | None) -> bytes | None:
            nonlocal result
            before = None if data is None else self.parse(data, f"{store.uri}/{name}")
            result = change(before)
            return None if result is None or result == before else self.to_json(result)

        amend(store, name, changed)
        return result


@functools.cache
def _fields(kind: type) -> dict[str, tuple[Any, bool]]:
    """Name -> type, and whether it may be left out."""
    hints = typing.get_type_hints(kind)
    return {
        field.name: (
            hints[field.name],
            field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
    }


def built(kind: Any, value: Any, where: str = "") -> Any:
    """`value`, as JSON holds it, as a `kind`: a dataclass, tuple, mapping, union, Literal, scalar or Any.

    Args:
        where: the field, for messages.

    Raises:
        ValueError: it is none.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if hasattr(kind, "from_dict"):
        return kind.from_dict(value)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _object(kind, value, f"{where}." if where else "")
    if origin in (typing.Union, types.UnionType):
        for one in sorted(arguments, key=lambda one: one is not type(value)):  # an int is no float of these
            try:
                return built(one, value, where)
            except ValueError:
                continue
    elif origin is tuple and isinstance(value, list):
        return tuple(built(arguments[0], one, f"{where}[{number}]") for number, one in enumerate(value))
    elif origin in (dict, Mapping) and isinstance(value, dict):
        return {name: built(arguments[1], one, f"{where}.{name[:50]}") for name, one in value.items()}
    elif kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    elif (origin is typing.Literal and value in arguments) or (kind is type(value) and kind is not float):
        return value
    raise ValueError(f"{where}: expected {getattr(kind, '__name__', kind)}, found {shown(value)}")


def _object(kind: Any, value: dict[str, Any], where: str) -> Any:
    fields = _fields(kind)
    if unknown := sorted(value.keys() - fields.keys()):
        raise ValueError(f"{where}unknown field {', '.join(unknown)[:100]}; written by a later version?")
    if lacking := [name for name, (_, optional) in fields.items() if not optional and name not in value]:
        raise ValueError(f"{where}lacks {', '.join(lacking)}")
    return kind(**{name: built(fields[name][0], one, f"{where}{name}") for name, one in value.items()})


def shown(value: Any) -> str:
    """Return a value in a message: not endless."""
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "..."
