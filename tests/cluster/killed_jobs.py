"""Trains in Jobs: undisturbed, with pods taken away, with the workers killed; the models must be equal.

    python tests/cluster/killed_jobs.py --deletes 20 --kills 5         # KUBECONFIG, KFP_ENDPOINT: README.md

What is done to pods, and in which stores: disturbed.py. Needs manifests/ applied. YANMO_TEST_CPU is what each
pod asks for, such as 50m on a node that is full. Prints a line for each, at the end whether the digests are
equal; ends with 1 where they are not. Not a pytest module: it takes an hour on a small node.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from disturbed import Disturbances, Training, parser
from real_cluster import TINY

CPU = os.environ.get("YANMO_TEST_CPU", "")


class Jobs(Disturbances):
    """Jobs with the same options, in stores that have the same data."""

    def train(self, name: str, option: str, count: int) -> None:
        """One model, with so many disturbances."""
        store, job = self.store(name), f"{self.label}-{name}"
        line = f"train.steps={self.given.steps} {TINY}"
        settings = {"YANMO_STORE": store, "YANMO_CHANNEL": self.label, "YANMO_OPTIONS": line}
        began = time.monotonic()
        self.create(job, settings)
        training = Training(job, "stage", lambda: self.pods(job), lambda: bool(self.state(job)))
        self.disturbed[name] = done = self.disturb(training, option, count)
        state = self.cluster.wait(lambda: self.state(job), f"Job {job}")
        failed = self.status(job).get("failed", 0)
        print(
            f"{name}: {state} after {time.monotonic() - began:.0f} s, disturbed {done} times, "
            f"{failed} pods counted as failed",
            flush=True,
        )
        if state != "Complete":
            raise RuntimeError(self.cluster.kubectl("logs", f"job/{job}")[-2000:])
        self.compare(name, f"{self.label}/train", store)
        self.cluster.kubectl("delete", "--wait=false", f"job/{job}")

    def create(self, name: str, settings: dict[str, str]) -> None:
        """A Job, as `kubectl create job --from` and `kubectl set env` make it."""
        shown = self.cluster.kubectl(
            "create", "job", name, "--from=cronjob/stage-train", "--dry-run=client", "-o=json"
        )
        job = json.loads(shown)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        kept = [each for each in container.get("env", []) if each["name"] not in settings]
        container["env"] = kept + [{"name": key, "value": value} for key, value in settings.items()]
        if CPU:
            container["resources"]["requests"]["cpu"] = CPU
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))

    def pods(self, job: str) -> list[dict[str, Any]]:
        found = json.loads(
            self.cluster.kubectl("get", "pods", f"--selector=batch.kubernetes.io/job-name={job}", "-o=json")
        )
        return sorted(found["items"], key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def status(self, job: str) -> dict[str, Any]:
        return dict(json.loads(self.cluster.kubectl("get", "job", job, "-o=json"))["status"])

    def state(self, job: str) -> str:
        """Complete, Failed or nothing yet."""
        found = [c["type"] for c in self.status(job).get("conditions", []) if c["status"] == "True"]
        return next((each for each in found if each in ("Complete", "Failed")), "")


def main() -> int:
    options = parser(__doc__, steps=500)
    options.add_argument("--each", type=int, default=4, help="disturbances of one Job, at most")
    jobs = Jobs(options.parse_args())
    for name, (option, count) in jobs.batches(jobs.given.each).items():
        jobs.train(name, option, count)
    return jobs.verdict()


if __name__ == "__main__":
    sys.exit(main())
