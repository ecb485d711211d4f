"""`yanmo compile --manifests`: the pipelines as a KFP that keeps them in Kubernetes takes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from custom_resources import faults_of

from yanmo_pipelines.compile import PIPELINES, main
from yanmo_pipelines.compiled_yaml import documents_of

NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def written(folder: Path, *flags: str) -> dict[str, list[dict[str, Any]]]:
    """Pipeline -> its documents."""
    assert main([f"--out={folder}", *flags]) == 0
    paths = {name: folder / f"{name}.yaml" for name in PIPELINES}
    return {name: documents_of(path.read_text(encoding="utf-8")) for name, path in paths.items()}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    return written(tmp_path_factory.mktemp("gpu"), "--resources=gpu", "--image-prefix=registry.example/a/")


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    flags = ("--resources=gpu", "--image-prefix=registry.example/a/", "--manifests")
    return written(tmp_path_factory.mktemp("manifests"), *flags)


@pytest.mark.parametrize("name", PIPELINES)
def test_the_manifests_are_ones_that_kfps_schemas_know_field_by_field(
    name: str, manifests: dict[str, list[dict[str, Any]]]
) -> None:
    for each in manifests[name]:
        assert list(faults_of(each)) == []
        assert NAME.fullmatch(each["metadata"]["name"])
    assert [each["kind"] for each in manifests[name]] == ["Pipeline", "PipelineVersion"]
    assert list(faults_of({**manifests[name][1], "spec": {"pipelinename": "x"}})), "they are strict"


@pytest.mark.parametrize("name", PIPELINES)
def test_a_version_is_the_compiled_pipeline_with_its_drop_downs(
    name: str, manifests: dict[str, list[dict[str, Any]]], compiled: dict[str, list[dict[str, Any]]]
) -> None:
    pipeline, version = manifests[name]
    spec, platform = compiled[name]
    assert version["spec"]["pipelineSpec"] == spec and version["spec"]["platformSpec"] == platform
    assert version["spec"]["pipelineName"] == pipeline["metadata"]["name"] == spec["pipelineInfo"]["name"]
    form = version["spec"]["pipelineSpec"]["root"]["inputDefinitions"]["parameters"]
    drop_downs = {field for field, declared in form.items() if "literals" in declared}
    of_training = {"model_size", "train_optimizer", "train_precision", "train_preset"}
    expected = {
        "language_model": of_training,
        "language_model_on_nodes": of_training,
        "chat": of_training,
    }
    assert drop_downs == expected.get(name, set())


def test_equal_names_of_versions_stand_for_equal_pipelines(
    manifests: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    flags = ("--image-prefix=registry.example/a/", "--manifests")
    again = written(tmp_path / "again", "--resources=gpu", *flags)
    assert again == manifests
    others = [
        written(tmp_path / "small", "--resources=small", *flags),
        written(tmp_path / "elsewhere", "--resources=gpu", "--manifests"),
        written(tmp_path / "secret", "--resources=gpu", "--store-secret=team-b", *flags),
    ]
    for name in PIPELINES:
        names = {each[name][1]["metadata"]["name"] for each in (manifests, *others)}
        assert len(names) == 4, "a version cannot be changed once it is applied"
