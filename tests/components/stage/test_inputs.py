"""What a stage says where an input is missing."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest

from yanmo.common.errors import DataError
from yanmo.options.fields import StageOptions, option_fields
from yanmo.stage.inputs import resolve_inputs
from yanmo.store.opening import open_store
from yanmo.store.pointers import MADE_BY, POINTED

STAGES = ("curate", "balance", "tokenize", "train", "evaluate", "promote")
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
    makers = {MADE_BY.get(name, name) for name in made}
    assert makers <= set(STAGES)
    assert any(f"run `yanmo {maker}` first" in str(found.value) for maker in makers), found.value
