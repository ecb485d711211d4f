"""The pipeline in a real KFP, by the API that its UI uses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_cluster import TASKS, RealCluster, small_form

FOUND = ("curate", "balance", "tokenize", "train", "evaluate")


@pytest.fixture(scope="module")
def trained(cluster: RealCluster, pipeline: Path) -> tuple[str, dict[str, Any]]:
    """A run that ended well, and its form."""
    form = small_form()
    run_id = cluster.start(pipeline, form, "whole")
    assert cluster.ended(run_id) == "SUCCEEDED", cluster.states(run_id)
    return run_id, form


def model_of(cluster: RealCluster, run_id: str) -> str:
    """The name of the run's model in the store: train/2a66774f3f08."""
    found = re.search(r"\b(train/[0-9a-f]{12}) is (?:already )?champion", cluster.log(run_id, "promote"))
    assert found, cluster.log(run_id, "promote")
    return found[1]


def texts_of(pipeline: Path) -> list[str]:
    """The form's fields into which text is typed; a drop-down has no empty choice, nor does KFP take one."""
    spec = next(yaml.safe_load_all(pipeline.read_text(encoding="utf-8")))
    fields = spec["root"]["inputDefinitions"]["parameters"]
    return [n for n, f in fields.items() if f["parameterType"] == "STRING" and "literals" not in f]


def test_the_whole_pipeline_ends_with_a_champion(
    cluster: RealCluster, trained: tuple[str, dict[str, Any]]
) -> None:
    run_id, form = trained
    assert cluster.states(run_id) == dict.fromkeys(TASKS, "SUCCEEDED"), "all at the root of the graph"
    said = cluster.log(run_id, "promote")
    assert "Promoted: it is the channel's first champion" in said and form["channel"] in said
    shown = cluster.yanmo("store", "show", model_of(cluster, run_id), f"--store={cluster.store}")
    assert re.search(rf"^run +{run_id}$", shown, re.M), "KFP gave the stage the id of its run"


def test_an_unchanged_run_finds_everything(
    cluster: RealCluster, pipeline: Path, trained: tuple[str, dict[str, Any]]
) -> None:
    before, form = trained
    run_id = cluster.start(pipeline, form, "again")
    assert cluster.ended(run_id) == "SUCCEEDED"
    for task in FOUND:
        assert "is committed already; nothing to do" in cluster.log(run_id, task), task
    assert model_of(cluster, run_id) == model_of(cluster, before)


def test_emptied_fields_mean_their_defaults(
    cluster: RealCluster, pipeline: Path, trained: tuple[str, dict[str, Any]]
) -> None:
    """ "Clone run" of a run that was given some fields shows the others empty, and sends them so."""
    before, form = trained
    run_id = cluster.start(pipeline, dict.fromkeys(texts_of(pipeline), "") | form, "emptied")
    assert cluster.ended(run_id) == "SUCCEEDED", cluster.states(run_id)
    assert model_of(cluster, run_id) == model_of(cluster, before)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"train_steps": "-5"}, "train_steps -5: expected a whole number"),
        ({"options": "train.warmup=3"}, "unknown option 'warmup'"),
        ({"data_sources": "minio://no-such-bucket-of-yanmo/x.jsonl"}, "no-such-bucket-of-yanmo"),
    ],
    ids=["field", "option", "data"],
)
def test_a_wrong_value_is_red_with_its_reason(
    cluster: RealCluster, pipeline: Path, fields: dict[str, str], words: str
) -> None:
    run_id = cluster.start(pipeline, small_form(**fields), "wrong")
    assert cluster.ended(run_id) == "FAILED"
    red = next(task for task, state in cluster.states(run_id).items() if state == "FAILED")
    said = cluster.log(run_id, red)
    assert words in said
    assert re.search(rf"^.{{0,20}}{red} error \d+: ", said.splitlines()[-1]), "KFP reddens lines with `error`"
    assert not cluster.pods(run_id, "train")


def test_a_gpu_that_no_node_has_is_waited_for_with_a_reason(cluster: RealCluster, pipeline: Path) -> None:
    if cluster.kubectl("get", "nodes", r"-o=jsonpath={.items[*].status.allocatable.nvidia\.com/gpu}").strip(
        " 0"
    ):
        pytest.skip("needs a cluster without GPUs")
    run_id = cluster.start(pipeline, small_form(training_pod_gpus="1"), "gpu")
    pod = cluster.pod(run_id, "train")
    main = next(c for c in pod["spec"]["containers"] if c["name"] == "main")
    assert main["resources"]["limits"]["nvidia.com/gpu"] == "1"
    reason = cluster.wait(lambda: cluster.waits_for(cluster.pod(run_id, "train")), "the scheduler's reason")
    assert "Insufficient nvidia.com/gpu" in reason
    cluster.terminate(run_id)
    assert cluster.ended(run_id) in ("FAILED", "CANCELED")
    cluster.wait(lambda: not [p for p in cluster.pods(run_id, "train") if not is_over(p)], "its pod to go")


def is_over(pod: dict[str, Any]) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")
