"""Data that was let go on purpose, and what stays in its place.

    cas/<stage>/<key>/<attempt>/LET_GO.json       when, which files, and what stands for each of them
    cas/<stage>/<key>/<attempt>/let_go/<path>     the ids of the texts that the table at <path> held

Written by `yanmo store gc --former-data`, for outputs that nothing but former champions rests on. LET_GO.json
is there before the first file is removed: a file that it names is not damaged where it is missing, and an
output that has it is not used, whichever of its files are still there. It holds for one attempt: the same key
made again has another, and is whole.

Manifest, options, reports, tables of copies and, of every text, its id and that of the text that it was made
from stay: enough to say which models learned a text, and to make the data again from the same raw text.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo.common.errors import DataError, wrong_in
from yanmo.store.manifest import FileEntry, Manifest, sealed, unsealed
from yanmo.store.objects import MAX_DOCUMENT_BYTES, ObjectStore, Wanted, Written, check_name
from yanmo.store.schema import OtherSchema, parse, utc_now

SCHEMA = "yanmo.let-go/1"
RECORD, FOLDER = "LET_GO.json", "let_go"
_TEXTS, _TOKENS = ("train-*.parquet", "valid-*.parquet"), ("tokens-*.parquet",)
_DATA = {"curate": _TEXTS, "balance": _TEXTS, "tokenize": _TOKENS}
"""Stage -> the files that may go. What they hold can be made again from the raw text and the options."""
WHY = "its data was let go by `yanmo store gc --former-data`: only former champions rested on it"


@dataclass(frozen=True, kw_only=True)
class LetGo:
    """What was let go of one attempt."""

    when: str
    """UTC, ISO 8601."""
    files: Mapping[str, Wanted | None]
    """Path -> the table of ids that stands for it; None where the ids are in another file of the output."""


def data_of(manifest: Manifest) -> list[FileEntry]:
    """The files of an output that may be let go; none of most stages."""
    patterns = _DATA.get(manifest.stage, ())
    return [e for e in manifest.files if any(fnmatch.fnmatchcase(e.path, one) for one in patterns)]


def has_texts(entry: FileEntry) -> bool:
    """Whether a file of `data_of` is a table with the ids of its texts, which stay."""
    return not fnmatch.fnmatchcase(entry.path, _TOKENS[0])


def record_name(manifest: Manifest) -> str:
    """Where LET_GO.json of an output lies."""
    return f"{prefix_of(manifest)}{RECORD}"


def folder_of(manifest: Manifest) -> str:
    """Where the tables of ids lie."""
    return f"{prefix_of(manifest)}{FOLDER}"


def prefix_of(manifest: Manifest) -> str:
    """How the names of all files of an output begin."""
    return f"cas/{manifest.stage}/{manifest.key}/{manifest.attempt}/"


def is_let_go(store: ObjectStore, manifest: Manifest) -> bool:
    """Whether the data of an output was let go, or is about to be: it may not be used."""
    return manifest.stage in _DATA and store.stat(record_name(manifest)) is not None


def has_lost_data(store: ObjectStore, manifest: Manifest) -> bool:
    """Whether a file of the data is not there."""
    return None in store.sizes([f"{prefix_of(manifest)}{entry.path}" for entry in data_of(manifest)])


def read_let_go(store: ObjectStore, manifest: Manifest) -> LetGo | None:
    """What was let go of an output; None where all of it is to be there.

    Raises:
        DataError: the record is damaged, or another version wrote it.
    """
    if manifest.stage not in _DATA:
        return None
    name = record_name(manifest)
    try:
        data, _ = store.read(name)
    except FileNotFoundError:
        return None
    try:
        return _parsed(parse(unsealed(data), SCHEMA, MAX_DOCUMENT_BYTES), manifest)
    except OtherSchema as error:
        raise DataError(f"{store.uri}/{name}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{store.uri}/{name}: damaged: {wrong_in(error)}; restore it") from error


def _parsed(values: dict[str, Any], manifest: Manifest) -> LetGo:
    of = (values["stage"], values["key"], values["attempt"])
    if of != (manifest.stage, manifest.key, manifest.attempt):
        raise ValueError(f"it is the record of {of[0]}/{of[1]}; restore both to their places")
    known = {entry.path for entry in data_of(manifest)}
    files: dict[str, Wanted | None] = {}
    for path, table in values["files"].items():
        if path not in known:
            raise ValueError(f"{path[:100]!r} is no file that may be let go")
        name = check_name(f"{folder_of(manifest)}/{path}")
        files[path] = None if table is None else Wanted(name, int(table["bytes"]), str(table["sha256"]))
    return LetGo(when=str(values["when"]), files=files)


def write_let_go(store: ObjectStore, manifest: Manifest, tables: Mapping[str, Written | None]) -> None:
    """Write the record.

    Args:
        tables: each file that goes -> what was published for it below `folder_of`; None for one that holds
            no ids.

    Raises:
        AlreadyExists: there is one.
    """
    values = {
        "schema": SCHEMA,
        "stage": manifest.stage,
        "key": manifest.key,
        "attempt": manifest.attempt,
        "when": utc_now(),
        "files": {
            path: None if table is None else {"bytes": table.bytes, "sha256": table.sha256}
            for path, table in sorted(tables.items())
        },
    }
    store.create(record_name(manifest), sealed(json.dumps(values, indent=1).encode()))


def withdraw_let_go(store: ObjectStore, manifest: Manifest) -> None:
    """Take it back; called where all files are still there. The record first: it names the tables."""
    found = read_let_go(store, manifest)
    store.delete(record_name(manifest))
    for table in found.files.values() if found else ():
        if table is not None:
            store.delete(table.name)
