"""A run that is disturbed from outside: its pod deleted, the run terminated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from real_cluster import TINY, RealCluster, small_form

pytestmark = pytest.mark.fault
STEPS = "400"
"""Of a tiny model: long enough to be disturbed in the middle."""


def longer_form() -> dict[str, Any]:
    form = small_form(train_steps=STEPS)
    return {**form, "options": f"{form['options']} {TINY}"}


def committed(cluster: RealCluster, run_id: str) -> str:
    """The model that a run's training committed or found."""
    found = re.search(
        r"\b(train/[0-9a-f]{12}) is committed already|committed (train/[0-9a-f]{12}) in",
        cluster.log(run_id, "train"),
    )
    assert found
    return found[1] or found[2]


def digest_of(cluster: RealCluster, model: str, store: str) -> str:
    shown = cluster.yanmo("store", "show", model, f"--store={store}")
    found = re.search(r"^content +([0-9a-f]{64})$", shown, re.M)
    assert found, shown
    return found[1]


def training(cluster: RealCluster, run_id: str, before: str = "") -> tuple[str, str]:
    """Wait until a training pod other than `before` has saved three checkpoints; its name and uid."""

    def said() -> Any:
        running = [p for p in cluster.pods(run_id, "train") if p["status"]["phase"] == "Running"]
        if not running or running[-1]["metadata"]["uid"] == before:
            return None
        meta = running[-1]["metadata"]
        return cluster.log(run_id, "train").count("saving step ") >= 3 and (meta["name"], meta["uid"])

    name, uid = cluster.wait(said, "a training with three checkpoints")
    return str(name), str(uid)


def test_a_training_pod_that_is_taken_away_is_gone_on_with_and_makes_the_same_model(
    cluster: RealCluster, pipeline: Path
) -> None:
    """Argo tries a deleted pod again; one that was evicted had the time to fail, and needs another policy."""
    form = longer_form()
    run_id = cluster.start(pipeline, form, "pods taken away")
    pod, uid = training(cluster, run_id)
    cluster.remove(pod, by_force=True)
    cluster.remove(training(cluster, run_id, uid)[0], by_force=False)
    if cluster.ended(run_id) == "FAILED":
        run_id = cluster.start(pipeline, form, "goes on")
        assert cluster.ended(run_id) == "SUCCEEDED", cluster.states(run_id)
    model = committed(cluster, run_id)
    assert re.search(rf"resuming at step \d+ of {STEPS}", cluster.log(run_id, "train"))

    twin = f"{cluster.store}-twin-{form['channel']}"
    of_data = [f"{form['channel']}/tokenize", f"--store={cluster.store}"]
    cluster.yanmo("store", "cp", *of_data, f"--to={twin}")
    undisturbed = cluster.start(pipeline, {**form, "store": twin}, "undisturbed")
    assert cluster.ended(undisturbed) == "SUCCEEDED"
    assert model == committed(cluster, undisturbed)
    assert digest_of(cluster, model, cluster.store) == digest_of(cluster, model, twin)


def test_a_terminated_run_leaves_nothing_running_and_the_next_goes_on(
    cluster: RealCluster, pipeline: Path
) -> None:
    form = longer_form()
    run_id = cluster.start(pipeline, form, "terminated")
    training(cluster, run_id)
    cluster.terminate(run_id)
    assert cluster.ended(run_id) in ("FAILED", "CANCELED")
    cluster.wait(
        lambda: not [p for p in cluster.pods(run_id) if p["status"]["phase"] == "Running"], "its pods to go"
    )
    again = cluster.start(pipeline, form, "goes on")
    assert cluster.ended(again) == "SUCCEEDED", cluster.states(again)
    assert re.search(rf"resuming at step \d+ of {STEPS}", cluster.log(again, "train"))
