"""The component of each stage, in somebody else's pipeline: examples/own_pipeline.py, run here."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from kfp import compiler, components, dsl
from tiny_road import write_text

from yanmo.store.file_store import FileStore
from yanmo.store.pointers import open_named, read_pointer
from yanmo_pipelines.compile import COMPILED, COMPONENTS
from yanmo_pipelines.local_runner import run_pipeline
from yanmo_pipelines.parameters import documents_of

EXAMPLE = Path(__file__).parents[2] / "examples/own_pipeline.py"


def example() -> Any:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("own_pipeline", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_stages_run_in_a_pipeline_of_somebody_elses_before_a_trainer_of_theirs(tmp_path: Path) -> None:
    """Their trainer reads the very bytes: what the page of the artifact says of it is true."""
    write_text(tmp_path / "t.jsonl", 12)
    compiler.Compiler().compile(example().own_pipeline, str(tmp_path / "own.yaml"))
    here = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    values = {"store": str(tmp_path / "store"), "sources": str(tmp_path / "t.jsonl")}
    tasks = run_pipeline(tmp_path / "own.yaml", values, tmp_path / "kfp", environment=here)
    assert [task.exit_code for task in tasks] == [0, 0, 0]
    store = FileStore(tmp_path / "store")
    named = read_pointer(store, "own", "tokenize")
    assert named is not None
    made = open_named(store, named, "tokenize")
    outputs = tasks[1].outputs
    assert outputs is not None
    said = json.loads(Path(outputs.file).read_text())["artifacts"]["token_cache"]["artifacts"][0]["metadata"]
    folder = said["bytes_at"].removeprefix("file://")
    assert {path.name for path in Path(folder).iterdir()} >= {entry.path for entry in made.entries()}
    tokens = sum(sum(split.values()) for split in made.manifest.counts["tokens"].values())
    assert said["tokens"] == tokens and said["megabytes"] > 0
    (trained,) = (tmp_path / "kfp").glob("**/train/executor_output.json")
    assert json.loads(trained.read_text())["parameterValues"]["Output"] == tokens


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_is_loaded_as_any_other_and_its_artifacts_are_those_that_others_make(name: str) -> None:
    loaded = components.load_component_from_file(str(COMPILED / f"components/{name}.yaml"))
    assert loaded.name == name
    spec = documents_of((COMPILED / f"components/{name}.yaml").read_text(encoding="utf-8"))[0]
    declared = spec["components"][f"comp-{name}"]["inputDefinitions"]
    assert set(declared["parameters"]) == {"store", "channel", "options"}
    assert all("defaultValue" in each for each in declared["parameters"].values()), "nothing is required"


def test_all_of_them_make_a_pipeline_together(tmp_path: Path) -> None:
    """What one hands over is what the next one takes, by KFP's own check of types."""
    made = {
        n: components.load_component_from_file(str(COMPILED / f"components/{n}.yaml")) for n in COMPONENTS
    }

    @dsl.pipeline(name="all")
    def everything():
        curated = made["curate"]()
        balanced = made["balance"](given_documents=curated.outputs["documents"])
        tokenized = made["tokenize"](documents=balanced.outputs["documents"])
        trained = made["train"](token_cache=tokenized.outputs["token_cache"])
        measured = made["evaluate"](
            model=trained.outputs["model"],
            evaluation_set=curated.outputs["evaluation_set"],
            documents=curated.outputs["documents"],
        )
        made["promote"](challenger=measured.outputs["evaluation"])

    compiler.Compiler().compile(everything, str(tmp_path / "all.yaml"))
