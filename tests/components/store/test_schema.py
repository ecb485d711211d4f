"""Hostile manifests, references and names: whatever the bytes, a value of the right types or a DataError."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_outputs import recipe, write_text

from yanmo.common.errors import DataError
from yanmo.store.commit import commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import FileEntry, Manifest, Reference
from yanmo.store.objects import MAX_DOCUMENT_BYTES, check_name, is_name
from yanmo.store.output import Output, find_output

KEY = "0" * 64
REFERENCE = {
    "schema": "yanmo.reference/1",
    "stage": "toy",
    "key": KEY,
    "manifest_uri": f"cas/toy/{KEY}/MANIFEST.json",
    "manifest_sha256": "1" * 64,
    "content_digest": "2" * 64,
}
FILE = {"path": "a/b.txt", "bytes": 3, "sha256": "3" * 64, "role": "content"}
MANIFEST = {
    "schema": "yanmo.manifest/1",
    "stage": "toy",
    "key": KEY,
    "revision": 1,
    "attempt": "0123456789ab",
    "files": [FILE, {**FILE, "path": "log", "role": "record"}],
    "counts": {"documents": {"诗": 3}},
    "metadata": {"shares": [0.5, None, True]},
    "options": {"seed": 0},
    "execution": {},
    "inputs": {
        "documents": REFERENCE,
        "sources": {"content_digest": "4" * 64, "uri": "file:///a"},
        "none": None,
    },
    "references": {"tokenizer": REFERENCE},
    "run_id": "",
    "created_at": "2026-11-21T00:00:00+00:00",
    "content_digest": "5" * 64,
}
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(KEY)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, index) in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for index, item in inner:
        found += [(value, index), *places(item)]
    return found


def parse_manifest(values: Any) -> Manifest | None:
    try:
        return Manifest.from_json(json.dumps(values).encode(), "here")
    except DataError as error:
        assert "here: damaged manifest" in str(error)
        return None


def test_the_documents_that_the_other_tests_change_are_good() -> None:
    assert parse_manifest(MANIFEST) is not None
    assert Reference.from_json(json.dumps(REFERENCE), "here").key == KEY


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_manifest_with_any_value_changed_is_refused_or_of_the_right_types(data: st.DataObject) -> None:
    values = copy.deepcopy(MANIFEST)
    container, index = data.draw(st.sampled_from(range(len(places(values)))).map(lambda n: places(values)[n]))
    if data.draw(st.booleans()):
        container[index] = data.draw(anything)
    else:
        del container[index]
    found = parse_manifest(values)
    if found is None:
        return
    assert all(
        isinstance(entry, FileEntry) and is_name(entry.path) and entry.bytes >= 0 for entry in found.files
    )
    assert len({entry.path for entry in found.files}) == len(found.files)
    assert all(isinstance(getattr(found, name), dict) for name in ("counts", "metadata", "options", "inputs"))
    assert is_name(f"cas/{found.stage}/{found.key}/{found.attempt}")
    assert len(found.expected_key) == 64


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200) | anything.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_data_error_and_never_another(data: bytes) -> None:
    for parse in (Manifest.from_json, Reference.from_json):
        with pytest.raises(DataError, match="here"):
            parse(data, "here")


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(REFERENCE)), anything)
def test_a_reference_with_any_field_changed_is_refused_or_names_one_place(name: str, value: Any) -> None:
    try:
        found = Reference.from_json(json.dumps({**REFERENCE, name: value}), "here")
    except DataError:
        return
    assert found.manifest_uri == f"cas/{found.stage}/{found.key}/MANIFEST.json"
    assert is_name(found.manifest_uri)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30) | st.text("./a-\0\n\\%:~", max_size=30))
def test_a_name_that_is_taken_stays_inside_its_folder(name: str) -> None:
    try:
        check_name(name)
    except DataError:
        return
    assert not name.startswith("/") and "" not in name.split("/")
    assert not {".", ".."} & set(name.split("/")) and name.isascii() and name.isprintable()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"later": 1}, "unknown field later"),
        ({"files": [FILE, FILE]}, "listed twice"),
        ({"files": [{**FILE, "path": "../x"}]}, "refused object name"),
        ({"files": [{**FILE, "bytes": True}]}, "bytes is True"),
        ({"files": [{**FILE, "bytes": -1}]}, "bytes is -1"),
        ({"files": [{**FILE, "role": "other"}]}, "role is 'other'"),
        ({"files": [{**FILE, "mode": 7}]}, "expected bytes, path, role, sha256"),
        ({"attempt": "../0123"}, "attempt is "),
        ({"stage": "cas/x"}, "stage is "),
        ({"revision": 1.5}, "revision: expected int"),
        ({"inputs": {"a": {**REFERENCE, "manifest_uri": "cas/toy/x"}}}, "expected 'cas/toy/"),
        ({"inputs": {"a": {"uri": "x"}}}, "a reference or a content_digest"),
    ],
)
def test_a_hostile_manifest_is_refused_with_the_reason(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        Manifest.from_json(json.dumps({**MANIFEST, **change}).encode(), "here")


def test_a_manifest_of_100_000_files_is_taken() -> None:
    files = [{**FILE, "path": f"shards/part-{number:06}.parquet"} for number in range(100_000)]
    data = json.dumps({**MANIFEST, "files": files}, indent=1).encode()
    assert len(data) < MAX_DOCUMENT_BYTES
    assert len(Manifest.from_json(data, "here").files) == 100_000


@pytest.mark.parametrize("field", ["options", "inputs", "revision"])
def test_a_manifest_whose_key_was_made_from_something_else_is_refused(
    store: FileStore, output: Output, field: str
) -> None:
    path = store.root / output.reference.manifest_uri
    values = json.loads(path.read_text(encoding="utf-8"))
    del values["sealed"]  # as somebody by hand would write it
    values[field] = {"options": {"a": 1}, "inputs": {"documents": REFERENCE}, "revision": 2}[field]
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(DataError, match="options, inputs or revision were changed"):
        find_output(store, "toy", recipe().key)
    made = commit_once(store, recipe(), write_text("春江潮水连海平"), force=True)
    assert made is not None and made.content_digest == output.content_digest


@pytest.mark.parametrize("number", [0, 2, 10])
def test_a_document_of_another_version_is_refused_in_one_sentence_and_not_called_damaged(number: int) -> None:
    data = json.dumps({**MANIFEST, "schema": f"yanmo.manifest/{number}"}).encode()
    with pytest.raises(
        DataError, match=f"here: schema 'yanmo.manifest/{number}' is of another version"
    ) as refused:
        Manifest.from_json(data, "here")
    assert "damaged manifest" not in str(refused.value) and "use that version here" in str(refused.value)
