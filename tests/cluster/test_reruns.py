"""Stages by kubectl, as manifests/README.md has it: from the suspended CronJobs of the overlay `small`."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_cluster import RealCluster, small_form

OVERLAY = Path(__file__).parents[2] / "manifests/overlays/small"
STAGES = ("curate", "balance", "tokenize", "train", "evaluate", "promote")


class Jobs:
    """Jobs that one test makes."""

    def __init__(self, cluster: RealCluster, form: dict[str, str]) -> None:
        self.cluster = cluster
        self.label = f"yanmo-test-{uuid.uuid4().hex[:8]}"
        of_train = f"train.steps={form['train_steps']} train.seed={form['train_seed']}"
        self.variables = {
            "YANMO_STORE": cluster.store,
            "YANMO_CHANNEL": form["channel"],
            "YANMO_OPTIONS": f"{of_train} {form['options']}",
        }

    def start(self, stage: str, name: str = "") -> str:
        """The name of a new Job, made by the three commands that the manifests' README shows."""
        job = f"{self.label}-{name or stage}"
        text = self.cluster.kubectl(
            "create", "job", job, f"--from=cronjob/stage-{stage}", "--dry-run=client", "-o=yaml"
        )
        given = [f"{name}={value}" for name, value in self.variables.items()]
        changed = self.cluster.kubectl("set", "env", "--local", "-f=-", "-o=yaml", *given, stdin=text)
        self.cluster.kubectl("apply", "-f=-", stdin=changed)
        return job

    def ended(self, job: str) -> str:
        """Complete or Failed."""

        def state() -> str:
            status = json.loads(self.cluster.kubectl("get", "job", job, "-o=json"))["status"]
            met = [c["type"] for c in status.get("conditions", []) if c["status"] == "True"]
            return next((each for each in met if each in ("Complete", "Failed")), "")

        return str(self.cluster.wait(state, f"Job {job}"))

    def log(self, job: str) -> str:
        """What its pods said; empty before the first."""
        try:
            return self.cluster.kubectl("logs", f"job/{job}")
        except RuntimeError:  # no pod, or its container is being made
            return ""

    def run(self, stage: str) -> str:
        """The log of a Job that ran to its good end."""
        job = self.start(stage)
        assert self.ended(job) == "Complete", self.log(job)
        return self.log(job)

    def clean(self) -> None:
        names = self.cluster.kubectl("get", "jobs", "-o=name").split()
        if mine := [name for name in names if f"/{self.label}" in name]:
            self.cluster.kubectl("delete", "--wait=false", *mine)


@pytest.fixture(scope="module")
def templates(cluster: RealCluster) -> None:
    """The CronJobs as this checkout has them."""
    if cluster.image_prefix:
        pytest.skip("needs a cluster whose images have plain names, as in manifests/overlays/small")
    cluster.kubectl("apply", f"--kustomize={OVERLAY}")
    done = subprocess.run(["kubectl", "diff", f"--kustomize={OVERLAY}"], capture_output=True, text=True)
    assert done.returncode == 0, f"applied, and not as it is written: {done.stdout}{done.stderr}"


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
