"""What a stage says where an input is missing."""

from __future__ import annotations

import dataclasses
import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from toy_outputs import recipe, write_text

from yanmo.common.errors import DataError, UsageError
from yanmo.common.names import STAGES, maker_of
from yanmo.options.fields import option_fields
from yanmo.options.shared import StageOptions
from yanmo.stage.inputs import resolve_inputs
from yanmo.store.commit import commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.named import Wanted, find_named
from yanmo.store.opening import open_store
from yanmo.store.pointers import POINTED

INPUTS = [
    (stage, field)
    for stage in STAGES
    for field in option_fields(importlib.import_module(f"yanmo.{stage}.config").STAGE.config, "input")
]


@pytest.mark.parametrize(("stage", "field"), INPUTS, ids=[f"{stage}-{f.name}" for stage, f in INPUTS])
def test_a_missing_input_names_the_stage_that_makes_it(
    stage: str, field: dataclasses.Field[Any], tmp_path: Path
) -> None:
    declared = dataclasses.field(default="latest", metadata={**field.metadata, "optional": False})
    cls = dataclasses.make_dataclass(
        "Alone", [(field.name, str, declared)], bases=(StageOptions,), frozen=True, kw_only=True
    )
    with pytest.raises(DataError) as found:
        resolve_inputs(open_store(str(tmp_path)), cls())
    made = [POINTED[name] for name in field.metadata["stages"]]
    makers = {maker_of(name) for name in made}
    assert makers <= set(STAGES)
    assert any(f"run `yanmo {maker}` first" in str(found.value) for maker in makers), found.value
    assert f" first, with --store {open_store(str(tmp_path)).uri} --channel " in str(found.value)


def test_an_input_is_named_by_the_digits_that_a_log_shows(store: FileStore) -> None:
    """`train/b41ab0931ad2` was refused, though every log and page says it so."""
    outputs = [commit_once(store, recipe(text=str(n)), write_text(str(n))) for n in range(40)]
    keys = [output.manifest.key for output in outputs if output]
    for key in keys:
        found = find_named(store, f"toy/{key[:12]}", Wanted(where="--earlier", stages=("toy",)))
        assert found is not None and found.manifest.key == key
    shortest = {key[:4] for key in keys}
    assert all(find_named(store, f"toy/{digits}", Wanted(where="--earlier")) for digits in shortest)


@pytest.mark.parametrize("digits", ["abc", "", "ABCD", "abcg", "a" * 65, "ab/cd", ".."])
def test_what_is_no_beginning_of_a_key_names_nothing(store: FileStore, digits: str) -> None:
    with pytest.raises((DataError, UsageError), match="first 4 digits are enough"):
        find_named(store, f"toy/{digits}", Wanted(where="--earlier"))


def test_digits_with_which_two_keys_begin_are_refused_with_both(store: FileStore) -> None:
    output = commit_once(store, recipe(), write_text("春"))
    assert output is not None
    key = output.manifest.key
    other = key[:20] + ("0" if key[20] != "0" else "1") + key[21:]
    shutil.copytree(store.root / "cas/toy" / key, store.root / "cas/toy" / other)
    with pytest.raises(UsageError, match=f"{key[:16]}.*give more digits"):
        find_named(store, f"toy/{key[:12]}", Wanted(where="--earlier"))
    assert str(find_named(store, f"toy/{key[:21]}", Wanted(where="--earlier"))) == f"toy/{key[:12]}"
