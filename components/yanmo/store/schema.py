"""JSON documents of a store: their version, their size, and the time as they write it."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.given_file import kind_of_json
from yanmo.common.plain_json import json_value

MAX_REFERENCE_BYTES = 4096


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
