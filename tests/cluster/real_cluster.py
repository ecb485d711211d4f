"""A cluster with Kubeflow Pipelines, as its user has it: KFP's REST API and kubectl, no client of ours.

Nothing is read of the installation but what every KFP 2.x shows: runs, tasks, pods with Argo's annotation,
logs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

TASKS = ("resolve", "curate", "balance", "tokenize", "train", "evaluate", "promote")
OVER = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")
WAIT_SECONDS = 3600
"""Until a run that stands still is given up; no test measures time."""
_OF_KFP = re.compile(r"([IWEF]\d{4} |time=|\{|\}|\s|Error: exit status|$)")
"""Lines of launcher and executor, between which a log has the stage's own."""

_AWAY = ("was refused", "Unable to connect", "TLS handshake timeout", "etcdserver: ")
"""kubectl's words for an API server that does not answer now."""


def absent() -> str:
    """Why there is no cluster to test with; empty where there is one."""
    names = [name for name in ("KUBECONFIG", "KFP_ENDPOINT") if not os.environ.get(name)]
    if names:
        return f"{' and '.join(names)} not set (tests/cluster/README.md)"
    return "" if shutil.which("kubectl") else "no kubectl on the PATH"


class RealCluster:
    """Where runs are started, watched and disturbed."""

    def __init__(self) -> None:
        self.endpoint = os.environ["KFP_ENDPOINT"].rstrip("/")
        self.namespace = os.environ.get("YANMO_NAMESPACE", "kubeflow")
        self.store = os.environ.get("YANMO_TEST_STORE", "minio://mlpipeline/yanmo")
        self.image_prefix = os.environ.get("YANMO_IMAGE_PREFIX", "")
        self.runs: list[str] = []

    def api(self, path: str, body: Any = None, method: str = "") -> Any:
        """One request to KFP's API."""
        headers = {"Content-Type": "application/json"}
        if token := os.environ.get("KF_PIPELINES_SA_TOKEN_PATH"):
            headers["Authorization"] = f"Bearer {Path(token).read_text(encoding='utf-8').strip()}"
        data = json.dumps(body).encode() if body is not None else None
        address = f"{self.endpoint}/apis/v2beta1/{path}"
        request = urllib.request.Request(address, data, headers, method=method or None)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            raise RuntimeError(
                f"{request.get_method()} {address}: {error.code} {error.read()[:2000]!r}"
            ) from error

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """What kubectl prints; tried again for a minute while the API server is away."""
        command = ["kubectl", f"--namespace={self.namespace}", *words]
        for left in range(12, -1, -1):
            done = subprocess.run(command, capture_output=True, text=True, input=stdin)
            if not left or not any(words in done.stderr for words in _AWAY):
                break
            time.sleep(5)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def serves(self, group: str) -> bool:
        """Whether the cluster has an API group."""
        return bool(self.kubectl("api-resources", f"--api-group={group}", "--output=name").strip())

    def start(self, pipeline: Path, parameters: dict[str, Any], name: str) -> str:
        """The id of a new run with these fields of the form."""
        spec, platform = yaml.safe_load_all(pipeline.read_text(encoding="utf-8"))
        body = {
            "display_name": f"yanmo-test {name}",
            "pipeline_spec": {"pipeline_spec": spec, "platform_spec": platform},
            "runtime_config": {"parameters": parameters},
        }
        self.runs.append(self.api("runs", body)["run_id"])
        return self.runs[-1]

    def run(self, run_id: str) -> dict[str, Any]:
        """What KFP knows of a run."""
        return dict(self.api(f"runs/{run_id}"))

    def ended(self, run_id: str) -> str:
        """Wait for the end of a run; its state."""
        state = str(self.wait(lambda: (s := self.run(run_id).get("state")) in OVER and s, f"run {run_id}"))
        if state in ("SUCCEEDED", "FAILED"):  # the tasks are reported a moment later
            told = {"SUCCEEDED": lambda said: said <= {*OVER}, "FAILED": lambda said: "FAILED" in said}[state]
            self.wait(lambda: told({*self.states(run_id).values()}), f"tasks of run {run_id}")
        return state

    def terminate(self, run_id: str) -> None:
        """As the button in the UI does."""
        self.api(f"runs/{run_id}:terminate", {}, "POST")

    def wait(self, found: Callable[[], Any], what: str, every: float = 2.0) -> Any:
        """The first true answer of `found`, asked again after so many seconds."""
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            if answer := found():
                return answer
            time.sleep(every)
        raise TimeoutError(f"{what}: nothing after {WAIT_SECONDS} s")

    def states(self, run_id: str) -> dict[str, str]:
        """Task -> state, of our tasks as the graph shows them."""
        details = self.run(run_id).get("run_details", {}).get("task_details", [])
        return {t["display_name"]: t.get("state", "") for t in details if t["display_name"] in TASKS}

    def pods(self, run_id: str, task: str = "") -> list[dict[str, Any]]:
        """The pods in which stages of the run work, those of one task, the newest last."""
        listed = json.loads(self.kubectl("get", "pods", "-o=json", f"--selector=pipeline/runid={run_id}"))
        node = re.compile(rf"\.{task or '[a-z-]+'}\(\d+\)\.executor\b")
        note = "workflows.argoproj.io/node-name"
        found = [p for p in listed["items"] if node.search(p["metadata"]["annotations"].get(note, ""))]
        return sorted(found, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def pod(self, run_id: str, task: str) -> dict[str, Any]:
        """Wait for the task's pod; the newest."""
        return dict(self.wait(lambda: (self.pods(run_id, task) or [None])[-1], f"the pod of {task}"))

    def log(self, run_id: str, task: str) -> str:
        """What the stage itself said in its newest pod, without the lines of KFP's programs."""
        text = self.kubectl("logs", self.pod(run_id, task)["metadata"]["name"], "--container=main")
        return "\n".join(line for line in text.splitlines() if not _OF_KFP.match(line))

    def remove(self, pod: str, by_force: bool) -> None:
        """Delete a pod without notice, or by the API that `kubectl drain` uses."""
        if by_force:
            self.kubectl("delete", "pod", pod, "--wait=false", "--grace-period=0", "--force")
            return
        where = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        what = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        self.kubectl("create", f"--raw={where}", "-f=-", stdin=json.dumps(what))

    def waits_for(self, pod: dict[str, Any]) -> str:
        """Why no node takes the pod; empty where one has."""
        conditions = pod["status"].get("conditions", [])
        return next((c.get("message", "") for c in conditions if c.get("reason") == "Unschedulable"), "")

    def yanmo(self, *words: str) -> str:
        """The answer of a command of ours that runs in a pod of the cluster, with the store's credentials."""
        from yanmo_pipelines.resources import IMAGES, SECRETS

        name = f"yanmo-test-{uuid.uuid4().hex[:8]}"
        mounts = [{"name": secret, "mountPath": path} for secret, path in SECRETS.items()]
        volumes = [{"name": s, "secret": {"secretName": s, "optional": True}} for s in SECRETS]
        container = {
            **{"name": name, "image": self.image_prefix + IMAGES["data"], "imagePullPolicy": "IfNotPresent"},
            **{"args": list(words), "volumeMounts": mounts},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        restricted = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
        spec = {
            **{"containers": [container], "volumes": volumes, "restartPolicy": "Never"},
            "securityContext": restricted,
        }
        overrides = f"--overrides={json.dumps({'apiVersion': 'v1', 'spec': spec})}"
        self.kubectl("run", name, f"--image={container['image']}", "--restart=Never", overrides)
        try:
            phase = self.wait(lambda: self._phase(name), f"pod {name}")
            said = self.kubectl("logs", name)
        finally:
            self.kubectl("delete", "pod", name, "--wait=false")
        if phase != "Succeeded":
            raise RuntimeError(f"yanmo {' '.join(words)}: {said}")
        return said

    def _phase(self, pod: str) -> str:
        phase = self.kubectl("get", "pod", pod, "-o=jsonpath={.status.phase}")
        return phase if phase in ("Succeeded", "Failed") else ""

    def clean(self) -> None:
        """End what still runs; finished runs stay for whoever wants to look."""
        for run_id in self.runs:
            if self.run(run_id).get("state") not in OVER:
                self.terminate(run_id)


TINY = (
    "train.layers=2 train.width=64 train.heads=1 train.head_width=64 train.feed_forward=128 "
    "train.batch_rows=4 train.ranks=1 train.warmup_steps=2 train.checkpoint_steps=5 train.log_every=5"
)
"""Options of a model so small that a training of some hundred steps, with many checkpoints, is over soon."""


def small_form(**fields: Any) -> dict[str, Any]:
    """A short training that no store has yet, in a channel of its own."""
    of_this_test = uuid.uuid4().hex[:12]
    form = {
        "channel": f"test-{of_this_test}",
        "train_seed": str(int(of_this_test, 16) % 1_000_000_000),
        "train_steps": "12",
        "options": "evaluate.budget_documents=10 evaluate.samples=4",
    }
    return form | fields
