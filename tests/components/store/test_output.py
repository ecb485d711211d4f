"""Reading: nothing is used that does not match its manifest, and every refusal says what to do."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import pytest
from toy_outputs import recipe, write_text

from yanmo.common.errors import DataError
from yanmo.store.commit import Attempt, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Manifest, Reference, canonical, content_digest, sealed, unsealed
from yanmo.store.output import Output, find_output, open_reference, read_json, superseded_name


def test_a_changed_file_of_the_same_size_is_refused(output: Output) -> None:
    path = output.path("text.txt")
    path.write_text("春江潮水连海乎", encoding="utf-8")
    with pytest.raises(DataError, match=r"changed since it was committed: expected sha256 .*--force"):
        Output(output.store, output.manifest, output.reference).path("text.txt")


@pytest.mark.parametrize("size", [0, 3, 100])
def test_a_short_or_long_file_is_refused_with_both_sizes(output: Output, size: int) -> None:
    os.truncate(output.path("text.txt"), size)
    with pytest.raises(DataError, match=f"expected 21 bytes, found {size} bytes; run the toy stage again"):
        output.path("text.txt")


def test_a_name_that_matches_nothing_lists_what_there_is(output: Output) -> None:
    with pytest.raises(DataError, match=r"no file 'train-\*'; it holds log.txt, text.txt"):
        output.paths("train-*")


def test_a_manifest_copied_from_another_key_is_refused(store: FileStore, output: Output) -> None:
    other = commit_once(store, recipe(a=2), write_text("别"))
    assert other is not None
    data, _ = store.read(other.reference.manifest_uri)
    (store.root / output.reference.manifest_uri).write_bytes(data)
    with pytest.raises(DataError, match="is the manifest of toy/"):
        find_output(store, "toy", recipe().key)


def test_a_reference_to_an_output_that_is_gone_says_what_to_run(store: FileStore, output: Output) -> None:
    shutil.rmtree(store.root / "cas/toy")
    with pytest.raises(DataError, match="no such output; run the toy stage again"):
        open_reference(store, output.reference)


def test_a_reference_opens_its_own_content_after_force_has_put_other_in_its_place(
    store: FileStore, output: Output
) -> None:
    commit_once(store, recipe(), write_text("别的字"), force=True)
    found = open_reference(store, output.reference)
    assert found.path("text.txt").read_text(encoding="utf-8") == "春江潮水连海平"


def test_a_reference_whose_content_is_nowhere_is_refused(store: FileStore, output: Output) -> None:
    commit_once(store, recipe(), write_text("别的字"), force=True)
    (store.root / superseded_name("toy", recipe().key, output.reference.manifest_sha256)).unlink()
    with pytest.raises(DataError, match="the reference pins"):
        open_reference(store, output.reference)


def test_a_reference_survives_being_written_and_read(output: Output) -> None:
    text = output.reference.to_json()
    assert Reference.from_json(text, "here") == output.reference
    assert len(text) < 700, "KFP copies it between tasks"


def test_parts_and_inputs_are_reached_through_the_manifest(store: FileStore, output: Output) -> None:
    def build(attempt: Attempt) -> Result:
        attempt.write("a.json", '{"a": 1}')
        attempt.write("b.json", "[1]")
        return Result(counts={}, references={"tokenizer": output})

    made = commit_once(store, recipe("next"), build)
    assert made is not None
    assert made.part("tokenizer").reference == output.reference
    assert made.input("documents") is None
    assert read_json(made, "a.json") == {"a": 1}
    with pytest.raises(DataError, match="expected a JSON object"):
        read_json(made, "b.json")
    with pytest.raises(DataError, match="has no part 'champion'; run the next stage again"):
        made.part("champion")


def test_the_digest_covers_paths_and_counts_of_content_in_any_order(output: Output) -> None:
    files = output.manifest.files
    assert content_digest(tuple(reversed(files)), {"a": 1, "b": 2}) == content_digest(files, {"b": 2, "a": 1})
    assert content_digest(files, {}) != content_digest(files, {"a": 1})


def test_canonical_json_refuses_what_has_no_one_form() -> None:
    assert canonical({"b": "诗", "a": [1, 2.5]}) == '{"a":[1,2.5],"b":"诗"}'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical(float("nan"))


def test_every_flipped_bit_of_a_manifest_is_found(store: FileStore, output: Output) -> None:
    path = store.root / output.reference.manifest_uri
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :])
        with pytest.raises(DataError, match=r"MANIFEST\.json"):
            open_reference(store, output.reference)
    path.write_bytes(good)
    assert open_reference(store, output.reference).manifest == output.manifest


def test_a_reference_to_a_manifest_of_equal_content_that_was_restored_is_used(
    store: FileStore, output: Output
) -> None:
    found = open_reference(store, replace(output.reference, manifest_sha256="0" * 64))
    assert found.content_digest == output.content_digest


@pytest.mark.parametrize(
    ("change", "word"),
    [({"later": 1}, "later"), ({"files": [{"path": "a"}]}, "bytes"), ({"files": 5}, "int")],
)
def test_a_sealed_manifest_with_other_fields_than_ours_is_refused(
    output: Output, change: dict[str, object], word: str
) -> None:
    """As another program or a later version may write one."""
    values = {**json.loads(unsealed(output.manifest.to_json())), **change}
    with pytest.raises(DataError, match=f"here: damaged manifest .*{word}"):
        Manifest.from_json(sealed(json.dumps(values, indent=1).encode()), "here")
