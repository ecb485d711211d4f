"""Stages by kubectl, as manifests/README.md has it: from the suspended CronJobs of the overlay `small`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import Jobs
from real_cluster import RealCluster, small_form

STAGES = ("curate", "balance", "tokenize", "train", "evaluate", "promote")


@pytest.fixture
def jobs(cluster: RealCluster, templates: None) -> Iterator[Jobs]:
    found = Jobs(cluster, small_form())
    yield found
    found.clean()


def test_every_stage_runs_by_kubectl_and_the_next_run_in_kfp_finds_all(
    cluster: RealCluster, pipeline: Path, templates: None
) -> None:
    form = small_form()
    jobs = Jobs(cluster, form)
    try:
        said = {stage: jobs.run(stage) for stage in STAGES}
    finally:
        jobs.clean()
    made = re.search(r"committed (train/[0-9a-f]{12}) in", said["train"])
    assert made, said["train"]
    assert f"{made[1]} is champion of channel '{form['channel']}'" in said["promote"]
    run_id = cluster.start(pipeline, form, "finds reruns")
    assert cluster.ended(run_id) == "SUCCEEDED", cluster.states(run_id)
    for stage in STAGES:
        assert "is committed already; nothing to do" in cluster.log(run_id, stage), stage
    assert f"{made[1]} is already champion" in cluster.log(run_id, "promote")


def test_of_two_live_jobs_of_one_key_the_second_waits_and_adopts(cluster: RealCluster, jobs: Jobs) -> None:
    for stage in ("curate", "balance", "tokenize"):
        jobs.run(stage)
    first = jobs.start("train", "first")
    cluster.wait(lambda: re.search(r"step \d+ of", jobs.log(first)), "the first step")
    second = jobs.start("train", "second")
    cluster.wait(lambda: "another run is making" in jobs.log(second), "the second to wait")
    assert jobs.ended(first) == jobs.ended(second) == "Complete"
    made = re.search(r"committed (train/[0-9a-f]{12}) in", jobs.log(first))
    assert made, jobs.log(first)
    found = jobs.log(second)
    assert f"adopted {made[1]}" in found or f"{made[1]} is committed already" in found, found
    assert "step 1 of" not in found, "it trained nothing"
