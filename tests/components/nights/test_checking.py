"""What `yanmo store verify` says of nights: every fault is named, and none of a store that is whole.

Documents lie in a store that others share. So whatever one holds, it is named as a fault, or those who read
it get along with it.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from conftest import VERDICT, end_of, failure, run_of

from yanmo.common.errors import DataError
from yanmo.nights.checking import fault_of
from yanmo.nights.night import seconds_of
from yanmo.nights.overdue import settle
from yanmo.nights.places import CHANNELS, list_name, record_name
from yanmo.nights.publishing import publish, rows_shown, show_row
from yanmo.nights.record import read_record
from yanmo.nights.short_pages import shorten
from yanmo.nights.telling import tell_begin, tell_end, tell_verdict
from yanmo.store.objects import ObjectStore, overwrite
from yanmo.store.opening import open_store

RECORD, MONTH, INDEX = record_name("nightly", "run-1"), list_name("nightly", "2026-11"), list_name("nightly")
DOCUMENTS = (*(record_name("nightly", f"run-{number}") for number in (1, 2, 3)), MONTH, INDEX, CHANNELS)
PAGE = "nights/nightly/2026-11-23-run-1.html"


def told(store: ObjectStore) -> ObjectStore:
    """Three nights: one with a verdict, one that failed, one that goes on."""
    tell_end(run_of(store), end_of("train", key="a" * 64, survived=1))
    tell_verdict(run_of(store), VERDICT)
    tell_end(run_of(store, "run-2"), failure())
    shorten(store, record_name("nightly", "run-2"), (read_record(store, "nightly", "run-2") or {})["serial"])
    tell_end(run_of(store, "run-3"), end_of("resolve"), by_chat=False)
    tell_begin(run_of(store, "run-3"), end_of("train", "working", key="b" * 64, cost={}))
    return store


@pytest.fixture
def nights(store: ObjectStore) -> ObjectStore:
    return told(store)


def faults(store: ObjectStore) -> dict[str, str]:
    found = {info.name: fault_of(store, info.name) for info in store.list("nights")}
    return {name: fault for name, fault in found.items() if fault}


def test_nights_as_they_are_told_have_no_fault(nights: ObjectStore) -> None:
    assert len(list(nights.list("nights"))) > 10 and faults(nights) == {}
    shorten(nights, RECORD, (read_record(nights, "nightly", "run-1") or {})["serial"])
    assert faults(nights) == {}, "a short page is as good"


@pytest.mark.parametrize("name", [RECORD, MONTH, INDEX, CHANNELS])
def test_a_document_cut_off_anywhere_is_named(nights: ObjectStore, name: str) -> None:
    data, _ = nights.read(name)
    for length in range(0, len(data) - 1, 37):
        overwrite(nights, name, data[:length])
        found = faults(nights)
        assert list(found) == [name] and f"{nights.uri}/{name}: damaged" in found[name], length


def test_a_page_that_is_gone_is_named_by_all_that_lead_to_it(nights: ObjectStore) -> None:
    nights.delete(PAGE)
    found = faults(nights)
    assert sorted(found) == sorted([RECORD, MONTH, INDEX])
    advice = "the page of 2026-11-23-run-1 is gone; run `yanmo nights rebuild`"
    assert all(advice in why for why in found.values())


def test_a_night_that_is_none_is_named_and_not_passed_over(nights: ObjectStore) -> None:
    values = json.loads(nights.read(MONTH)[0])
    values["nights"].append({"date": "2026-13-45", "run_id": "x"})
    overwrite(nights, MONTH, json.dumps(values).encode())
    assert "holds what is no night" in faults(nights)[MONTH]


def test_a_document_of_a_later_version_is_named_as_such(nights: ObjectStore) -> None:
    values = json.loads(nights.read(RECORD)[0])
    overwrite(nights, RECORD, json.dumps({**values, "schema": "yanmo.night/2"}).encode())
    assert "another version" in faults(nights)[RECORD]


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a document has values, whole objects and lists among them."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in items:
        found += paths(each, (*path, name))
    return found


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    document = copy.deepcopy(document)
    at = document
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return document


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.long
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), name=st.sampled_from(DOCUMENTS))
def test_whatever_a_document_holds_it_is_named_or_its_readers_get_along(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str
) -> None:
    store = told(open_store(str(tmp_path_factory.mktemp("store"))))
    before = json.loads(store.read(name)[0])
    path = data.draw(st.sampled_from(paths(before)))
    after = replaced(before, path, data.draw(ANYTHING))
    overwrite(store, name, json.dumps(after).encode())
    fault = fault_of(store, name)
    assert fault is None or fault.startswith(f"{store.uri}/{name}: ")
    try:
        settle(store, "nightly")
        for run in ("run-1", "run-2", "run-3"):
            record = read_record(store, "nightly", run)
            assert record is not None
            publish(store, record)
            seconds_of(str(record["began"]))
        for row in rows_shown(store, "nightly"):
            show_row(store, "nightly", row)
    except DataError as error:
        assert store.uri in str(error), "named by its readers as well"
