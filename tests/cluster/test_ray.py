"""Data stages of a run of KFP on a Ray cluster: the same as without one, while its pods are deleted.

The pods are those of manifests/components/ray, with less CPU, as Deployments: no operator is needed. The node
has the image yanmo-data-ray.
"""

from __future__ import annotations

import copy
import json
import secrets
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
import zstandard
from real_cluster import RealCluster

from yanmo_pipelines.compile import compile_pipeline, load_pipeline
from yanmo_pipelines.resources import IMAGES, RAY_SECRET, images_of

pytestmark = pytest.mark.fault
ROOT = Path(__file__).parents[2]
SPEC = yaml.safe_load((ROOT / "manifests/components/ray/cluster.yaml").read_text(encoding="utf-8"))["spec"]
HEAD, WORKERS, SERVICE = "yanmo-head", "yanmo-workers", "yanmo-head-svc"
OPTIONS = "curate.shard_characters=500000 tokenize.agreement_sentences=100"
TEXTS = """
import sys
from yanmo.store.opening import open_store
lines = sys.stdin.buffer.read().splitlines(keepends=True)
store = open_store(sys.argv[1])
for number in range(8):
    store.create(f"{number}.jsonl", b"".join(lines[number::8]))
"""
DIGESTS = """
import json, sys
from yanmo.store.opening import open_store
store = open_store(sys.argv[1])
names = [info.name for info in store.list("cas") if info.name.endswith("/MANIFEST.json")]
found = {name: json.loads(store.read(name)[0])["content_digest"] for name in names}
print(json.dumps(found))
"""
STOP = (
    "sh",
    "-c",
    "cd /proc; for p in [0-9]*; do grep -qs ^ray::work $p/cmdline && kill -STOP $p && echo $p; done; true",
)
"""Has the tasks of a pod stand still, and names their processes."""


def deployment(group: str, template: dict[str, Any], replicas: int, image: str, flags: list[str]) -> Any:
    """Pods of the cluster as KubeRay makes them of the manifest."""
    pod, labels = copy.deepcopy(template), {"ray.io/cluster": "yanmo", "ray.io/node-type": group}
    pod["metadata"]["labels"] |= labels
    (container,) = pod["spec"]["containers"]
    token = {"secretKeyRef": {"name": SPEC["authOptions"]["secretName"], "key": "auth_token"}}
    container |= {
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["ray", "start", "--block", "--disable-usage-stats", "--object-store-memory=200000000"],
        "args": flags,
        "env": [{"name": "RAY_AUTH_MODE", "value": "token"}, {"name": "RAY_AUTH_TOKEN", "valueFrom": token}],
        "resources": {
            "requests": {"cpu": "200m", "memory": "1Gi"},
            "limits": {"cpu": "1", "memory": "2Gi"},
        },
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    name = HEAD if group == "head" else WORKERS
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


class OnRay:
    """A Ray cluster of a head and two workers, texts in a bucket, and runs that use both."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self.cluster = cluster
        self.place = f"{cluster.store}-ray-{uuid.uuid4().hex[:8]}"
        self.pipeline = folder / "data_only.yaml"
        compile_pipeline(load_pipeline("data_only"), self.pipeline, cluster.image_prefix, with_ray=True)
        self.seconds: dict[str, float] = {}

    def start(self) -> None:
        """Start the cluster, and put eight files of text into the bucket."""
        image = images_of(self.cluster.image_prefix, with_ray=True)[IMAGES["data"]]
        head, workers = SPEC["headGroupSpec"], SPEC["workerGroupSpecs"][0]
        own = {group: [f"--{n}={v}" for n, v in of["rayStartParams"].items()] for group, of in
               (("head", head), ("worker", workers))}  # fmt: skip
        ports = [{"name": "gcs", "port": 6379}, {"name": "client", "port": 10001}]
        service = {"ports": ports, "selector": {"ray.io/node-type": "head"}}
        token = {"auth_token": secrets.token_hex(32)}
        flags = ["--head", "--port=6379", "--ray-client-server-port=10001", *own["head"]]
        of_workers = [f"--address={SERVICE}:6379", "--num-cpus=1", *own["worker"]]
        objects = [
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": RAY_SECRET}, "stringData": token},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE}, "spec": service},
            deployment("head", head["template"], 1, image, flags),
            deployment("worker", workers["template"], 2, image, of_workers),
        ]
        self.cluster.kubectl("apply", "-f=-", stdin=yaml.safe_dump_all(objects))
        for name in (HEAD, WORKERS):
            self.cluster.kubectl("rollout", "status", f"deployment/{name}", "--timeout=300s")
        with (ROOT / "corpus/small.jsonl.zst").open("rb") as file:
            texts = zstandard.ZstdDecompressor().stream_reader(file).read().decode()
        self.in_head(TEXTS, f"{self.place}/texts", stdin=texts)

    def stop(self) -> None:
        """Remove the cluster, without a wait."""
        named = [f"secret/{RAY_SECRET}", f"service/{SERVICE}", f"deploy/{HEAD}", f"deploy/{WORKERS}"]
        self.cluster.kubectl("delete", "--wait=false", "--ignore-not-found", *named)

    def in_head(self, program: str, *words: str, stdin: str = "") -> str:
        """What a program of Python's prints in the head's pod."""
        command = ("exec", "-i", f"deploy/{HEAD}", "--", "python3", "-c", program, *words)
        return self.cluster.kubectl(*command, stdin=stdin)

    def run(self, name: str, engine: str) -> str:
        """The id of a new run in a store of its own."""
        form = {"channel": "ray", "data_engine": engine, "data_sources": f"{self.place}/texts"}
        form |= {"store": f"{self.place}/{name}", "options": OPTIONS}
        self.seconds[name] = -time.monotonic()
        return self.cluster.start(self.pipeline, form, f"ray {name}")

    def made(self, name: str, run_id: str) -> dict[str, str]:
        """What a run has made: manifest -> digest."""
        assert self.cluster.ended(run_id) == "SUCCEEDED", self.cluster.states(run_id)
        self.seconds[name] += time.monotonic()
        print(f"{name}: {self.seconds[name]:.0f} s")
        found: dict[str, str] = json.loads(self.in_head(DIGESTS, f"{self.place}/{name}"))
        return found

    def delete_at_work(self, run_id: str, node_type: str) -> None:
        """Delete a pod of the cluster by force while a worker is at work on a task of curate, which stands
        still from then on: a pod lives on for seconds, in which a task may end."""

        def pods(of: str) -> list[str]:
            return self.cluster.kubectl("get", "pods", f"--selector=ray.io/node-type={of}", "-o=name").split()

        def at_work() -> str | None:
            return next(
                (pod for pod in pods("worker") if self.cluster.kubectl("exec", pod, "--", *STOP)), None
            )

        self.cluster.wait(lambda: "on a Ray cluster with" in self.said(run_id), "curate", every=0.5)
        busy = self.cluster.wait(at_work, "a task", every=0.1)
        (chosen,) = [busy] if node_type == "worker" else pods(node_type)
        self.cluster.remove(chosen.removeprefix("pod/"), by_force=True)

    def said(self, run_id: str) -> str:
        """The log of curate; empty before its container has started."""
        try:
            return self.cluster.log(run_id, "curate")
        except RuntimeError:
            return ""


@pytest.fixture(scope="module")
def on_ray(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRay]:
    found = OnRay(cluster, tmp_path_factory.mktemp("ray"))
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def made_here(on_ray: OnRay) -> dict[str, str]:
    """What the same run makes in its own pods."""
    return on_ray.made("local", on_ray.run("local", "local"))


def test_a_run_makes_the_same_on_a_ray_cluster(on_ray: OnRay, made_here: dict[str, str]) -> None:
    run_id = on_ray.run("ray", "ray")
    assert on_ray.made("ray", run_id) == made_here
    assert "on a Ray cluster with 2 CPUs" in on_ray.said(run_id)


@pytest.mark.parametrize(
    ("node_type", "words"),
    [("worker", "its task is done again"), ("head", "the Ray cluster went away")],
)
def test_a_pod_of_it_is_deleted_and_the_run_makes_the_same(
    node_type: str, words: str, on_ray: OnRay, made_here: dict[str, str]
) -> None:
    run_id = on_ray.run(node_type, "ray")
    on_ray.delete_at_work(run_id, node_type)
    assert on_ray.made(node_type, run_id) == made_here
    assert words in on_ray.said(run_id)
