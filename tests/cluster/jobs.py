"""Jobs from the suspended CronJobs of manifests/, as its README has them made."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from real_cluster import RealCluster

OVERLAY = Path(__file__).parents[2] / "manifests/overlays/small"


class Jobs:
    """Jobs that one test makes."""

    def __init__(self, cluster: RealCluster, form: dict[str, str]) -> None:
        self.cluster = cluster
        self.label = f"yanmo-test-{uuid.uuid4().hex[:8]}"
        self.seed = int(form["train_seed"])
        """No other run of the tests has this one, nor the few after it: no store has their models."""
        of_train = f"train.steps={form['train_steps']} train.seed={form['train_seed']}"
        self.variables = {
            "YANMO_STORE": cluster.store,
            "YANMO_CHANNEL": form["channel"],
            "YANMO_OPTIONS": f"{of_train} {form['options']}",
        }

    def start(self, stage: str, name: str = "", options: str = "") -> str:
        """The name of a new Job, made by the three commands that the manifests' README shows.

        Args:
            options: of this Job, before those of all.
        """
        job = f"{self.label}-{name or stage}"
        text = self.cluster.kubectl(
            "create", "job", job, f"--from=cronjob/stage-{stage}", "--dry-run=client", "-o=yaml"
        )
        words = f"{self.variables['YANMO_OPTIONS']} {options}".split()
        merged = dict(word.split("=", 1) for word in words)  # given twice, an option would be refused
        line = " ".join(f"{name}={text}" for name, text in merged.items())
        variables = {**self.variables, "YANMO_OPTIONS": line}
        given = [f"{name}={value}" for name, value in variables.items()]
        changed = self.cluster.kubectl("set", "env", "--local", "-f=-", "-o=yaml", *given, stdin=text)
        self.cluster.kubectl("apply", "-f=-", stdin=changed)
        return job

    def state(self, job: str) -> str:
        """Complete or Failed; empty before."""
        status = json.loads(self.cluster.kubectl("get", "job", job, "-o=json"))["status"]
        met = [c["type"] for c in status.get("conditions", []) if c["status"] == "True"]
        return next((each for each in met if each in ("Complete", "Failed")), "")

    def ended(self, job: str) -> str:
        """Complete or Failed."""
        return str(self.cluster.wait(lambda: self.state(job), f"Job {job}"))

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
