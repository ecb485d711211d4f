"""A record in a store: a dataclass as a small JSON object of one schema; and what all JSON documents of a
store have: a version, a bound of their size, and the time as they write it.

Read whole or refused (too long, of another version, a field more or less or of another type), created if
absent, changed by compare-and-swap. What a record must hold beyond the types of its fields its class checks
in `__post_init__` (ValueError).

Alternative not taken: pydantic. The types here are few, and both images stay free of another compiled
dependency.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import json
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from yanmo.common.errors import DataError
from yanmo.common.given_file import json_value, kind_of_json
from yanmo.store.objects import MAX_DOCUMENT_BYTES, ObjectStore, amend

T = TypeVar("T")


class OtherSchema(ValueError):
    """A document that another version of Yanmo wrote: it is good, and not for this version to judge."""


def utc_now() -> str:
    """Return this second as records write it: UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@contextlib.contextmanager
def judging(where: str, damaged: str, mend: str) -> Iterator[None]:
    """Raise DataError for what the block, which reads the document at `where`, finds wrong with it.

    Args:
        damaged: what is said of it, with {} for why: `damaged: {}`.
        mend: what a person does about it.
    """
    try:
        yield
    except OtherSchema as error:  # whole: nothing is to be put in its place
        raise DataError(f"{where}: {error}") from error
    except (ValueError, TypeError, KeyError) as error:  # the last two: of fields that are not ours
        raise DataError(f"{where}: {damaged.format(error)}; {mend}") from error


def parse(data: str | bytes, schema: str, limit: int) -> dict[str, Any]:
    """Return the JSON object in `data`, which is of `schema`.

    Args:
        limit: bytes (characters of a text) that it may have.

    Raises:
        OtherSchema: another version wrote it.
        ValueError: too long, not JSON, too deep, not an object, or of no version of `schema`.
    """
    if len(data) > limit:
        raise ValueError(f"{len(data)} bytes, expected at most {limit}")
    values = json_value(data, parse_constant=_refuse)
    if not isinstance(values, dict):
        raise ValueError(f"expected a JSON object, found {kind_of_json(values)}")
    if values.get("schema") != schema:
        raise _other_schema(values.get("schema"), schema)
    return values


def _other_schema(found: Any, schema: str) -> ValueError:
    family, _, number = schema.rpartition("/")
    theirs, _, digits = found.rpartition("/") if isinstance(found, str) else ("", "", "")
    if theirs == family and digits.isascii() and digits.isdigit() and int(digits) != int(number):
        return OtherSchema(
            f"schema {found[:100]!r} is of another version of Yanmo, this one reads {schema!r} alone: use "
            "that version here, or another store (nothing is damaged)"
        )
    return ValueError(f"schema {str(found)[:100]!r}, expected {schema!r}")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


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
