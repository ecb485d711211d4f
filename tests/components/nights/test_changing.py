"""Documents that several change at once, and pages of them: the newest stays."""

from __future__ import annotations

import re

import pytest

from yanmo.common.errors import DataError
from yanmo.nights.changing import change, put_page, read_document, serial_of
from yanmo.store.objects import ObjectStore

SCHEMA = "yanmo.tests/1"


def page(serial: int, text: str = "") -> str:
    return f'<meta name="yanmo-serial" content="{serial}">{text}'


def test_a_page_of_an_earlier_change_never_takes_the_place_of_a_later_one(store: ObjectStore) -> None:
    def put(serial: int, text: str, *, again: bool = False) -> str:
        put_page(store, "nights/index.html", serial, lambda: page(serial, text), again=again)
        return store.read("nights/index.html")[0].decode()

    assert put(4, "first") == page(4, "first")
    assert put(5, "second") == page(5, "second")
    assert put(4, "late") == page(5, "second")
    assert put(4, "late", again=True) == page(5, "second")
    assert put(5, "the same change") == page(5, "second")
    assert put(5, "made again", again=True) == page(5, "made again")
    assert serial_of(b"no page of ours") == -1


def test_a_change_that_meets_another_is_made_upon_it(store: ObjectStore) -> None:
    """Between its reading and its writing somebody else writes: both count, in one order."""
    rivals = iter(range(3))

    def add(values: dict[str, object]) -> dict[str, object]:
        for number in rivals:
            change(store, "x.json", SCHEMA, lambda found: {**found, f"rival {number}": True})  # noqa: B023
            break
        return {**values, "mine": True}

    values = change(store, "x.json", SCHEMA, add)
    assert values == read_document(store, "x.json", SCHEMA)
    assert set(values) == {"schema", "serial", "mine", "rival 0", "rival 1", "rival 2"}
    assert values["serial"] == 4
    assert change(store, "x.json", SCHEMA, lambda found: found)["serial"] == 4, (
        "nothing is written for nothing"
    )


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"schema": "yanmo.tests/1"}'])
def test_what_is_damaged_is_neither_read_nor_written_over(store: ObjectStore, data: bytes) -> None:
    store.create("x.json", data)
    with pytest.raises(DataError, match=re.escape("x.json: damaged")):
        read_document(store, "x.json", SCHEMA)
    with pytest.raises(DataError, match=re.escape("x.json: damaged")):
        change(store, "x.json", SCHEMA, lambda found: {**found, "mine": True})
    assert store.read("x.json")[0] == data
