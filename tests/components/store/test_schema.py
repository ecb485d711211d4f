"""Hostile manifests, references and names: whatever the bytes, a value of the right types or a DataError."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.common.errors import DataError
from yanmo.store.manifest import Manifest, Reference, sealed
from yanmo.store.objects import MAX_DOCUMENT_BYTES, check_name, is_name

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


def test_a_manifest_of_100_000_files_is_taken() -> None:
    files = [{**FILE, "path": f"shards/part-{number:06}.parquet"} for number in range(100_000)]
    data = sealed(json.dumps({**MANIFEST, "files": files}, indent=1).encode())
    assert len(data) < MAX_DOCUMENT_BYTES
    assert len(Manifest.from_json(data, "here").files) == 100_000


def test_a_document_of_another_version_is_refused_in_one_sentence_and_not_called_damaged() -> None:
    data = json.dumps({**MANIFEST, "schema": "yanmo.manifest/2"}).encode()
    with pytest.raises(DataError, match=r"here: schema 'yanmo.manifest/2' is of another version") as refused:
        Manifest.from_json(data, "here")
    assert "damaged manifest" not in str(refused.value) and "use that version here" in str(refused.value)
