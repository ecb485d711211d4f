"""What the pointers of a store name, and what their histories remember."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from yanmo.common.errors import DataError
from yanmo.store.manifest import Reference, unsealed
from yanmo.store.objects import MAX_DOCUMENT_BYTES, ObjectInfo, ObjectStore
from yanmo.store.pointers import RECORD_SCHEMA, RECORDED, check_stage, parse_pointer
from yanmo.store.record import judging, parse
from yanmo.store.runs.run_record import RUN, is_run_record

_RECORD = re.compile(r"pointers/[^/]+/history/\d{6}\.json\Z")
_POINTER = re.compile(r"pointers/[^/]+/([^/]+)\.json\Z")


@dataclass(frozen=True)
class Named:
    """One reference in a file below pointers/."""

    by: str
    """`demo/champion`, `demo/history/000001`, or `demo/runs/ID`."""
    reference: Reference
    modified: float

    @property
    def is_pointer(self) -> bool:
        """A pointer, not a record of a history, a run or a channel."""
        return self.by.count("/") == 1


def read_all(store: ObjectStore, listed: Iterable[ObjectInfo]) -> Iterator[Named]:
    """Every reference in the listed files of pointers/.

    Raises:
        DataError: one of the files is damaged, or of another place; nobody can then know what it kept.
    """
    for info in listed:
        try:
            data, _ = store.read(info.name)
        except FileNotFoundError:
            continue  # removed by hand since it was listed
        by = info.name.removeprefix("pointers/").removesuffix(".json")
        for reference in _read(info.name, data, f"{store.uri}/{info.name}"):
            yield Named(by, reference, info.modified)


def read_undamaged(store: ObjectStore, listed: Iterable[ObjectInfo]) -> tuple[list[Named], dict[str, str]]:
    """The references in the listed files that can be read; and by name (`Named.by`) why a file cannot."""
    found: list[Named] = []
    damaged: dict[str, str] = {}
    for info in listed:
        try:
            found += read_all(store, [info])
        except DataError as error:
            damaged[info.name.removeprefix("pointers/").removesuffix(".json")] = str(error)
    return found, damaged


def _read(name: str, data: bytes, where: str) -> list[Reference]:
    if _RECORD.match(name):
        return _read_record(name, data, where)
    if is_run_record(name):
        return list(RUN.parse(data, where).outputs.values())
    if pointer := _POINTER.match(name):
        return [parse_pointer(data, pointer[1], where)]
    raise DataError(
        f"{where}: expected <channel>/<pointer>.json, <channel>/history/<number>.json or "
        "<channel>/runs/<run>.json here; move it out of pointers/, or use the version of Yanmo that wrote it"
    )


def _read_record(name: str, data: bytes, where: str) -> list[Reference]:
    with judging(where, "damaged: {}", "restore it, or delete it by hand"):
        values = parse(data, RECORD_SCHEMA, MAX_DOCUMENT_BYTES)
        unsealed(data)
        given = {field: values.get(field) for field in RECORDED if field == "model" or values.get(field)}
        named = {field: Reference.from_dict(value) for field, value in given.items()}
    if values.get("number") != int(name[-11:-5]):
        raise DataError(f"{where}: it is the record of number {values.get('number')}; restore it")
    for field, reference in named.items():
        check_stage(reference, (RECORDED[field],), f"{where}: {field}")
    return list(named.values())
