"""Data stages of a run of KFP on a Ray cluster: the same as without one, while its pods are deleted.

The cluster is that of manifests/components/ray, with less CPU and memory: Kueue, where it is installed, lets
it begin, KubeRay makes its pods, and Ray's autoscaler asks for workers, none of which is there at first. The
node has the image yanmo-data-ray.
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
CLUSTER = yaml.safe_load((ROOT / "manifests/components/ray/cluster.yaml").read_text(encoding="utf-8"))
NAME = f"raycluster/{CLUSTER['metadata']['name']}"
PODS = f"--selector=ray.io/cluster={CLUSTER['metadata']['name']}"
LITTLE = {"requests": {"cpu": "200m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}
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


def small(image: str) -> dict[str, Any]:
    """The cluster of the manifest with less CPU and memory, and at most two workers."""
    cluster = copy.deepcopy(CLUSTER)
    (workers,) = cluster["spec"]["workerGroupSpecs"]
    workers["maxReplicas"] = 2
    for group in (cluster["spec"]["headGroupSpec"], workers):
        group["rayStartParams"]["object-store-memory"] = "200000000"
        (container,) = group["template"]["spec"]["containers"]
        container |= {"image": image, "imagePullPolicy": "IfNotPresent", "resources": LITTLE}
    return cluster


class OnRay:
    """A Ray cluster of a head and up to two workers, texts in a bucket, and runs that use both."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self.cluster = cluster
        self.place = f"{cluster.store}-ray-{uuid.uuid4().hex[:8]}"
        self.pipeline = folder / "data_only.yaml"
        compile_pipeline(load_pipeline("data_only"), self.pipeline, cluster.image_prefix, with_ray=True)
        self.seconds: dict[str, float] = {}

    def start(self) -> None:
        """Start the cluster, and put eight files of text into the bucket."""
        image = images_of(self.cluster.image_prefix, with_ray=True)[IMAGES["data"]]
        token = {"auth_token": secrets.token_hex(32)}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": RAY_SECRET}, "stringData": token}
        both = {"apiVersion": "v1", "kind": "List", "items": [secret, small(image)]}
        if self.cluster.serves("kueue.x-k8s.io"):
            folder = ROOT / "manifests/components/queue"
            self.cluster.kubectl("apply", f"-f={folder / 'queues.yaml'}", f"-f={folder / 'priorities.yaml'}")
        self.cluster.kubectl("apply", "-f=-", stdin=json.dumps(both))
        self.cluster.kubectl("wait", NAME, "--for=condition=HeadPodReady", "--timeout=300s")
        with (ROOT / "corpus/small.jsonl.zst").open("rb") as file:
            texts = zstandard.ZstdDecompressor().stream_reader(file).read().decode()
        self.in_head(TEXTS, f"{self.place}/texts", stdin=texts)

    def stop(self) -> None:
        """Remove the cluster, and wait until its pods are gone: the next one has the same name."""
        self.cluster.kubectl("delete", "--ignore-not-found", f"secret/{RAY_SECRET}", NAME)
        self.cluster.wait(lambda: not self.pods("head") + self.pods("worker"), "the end of the cluster")

    def pods(self, node_type: str) -> list[str]:
        """The cluster's pods, as pod/NAME: head or worker."""
        return self.cluster.kubectl("get", "pods", f"{PODS},ray.io/node-type={node_type}", "-o=name").split()

    def is_ready(self, pod: str) -> bool:
        """Whether a pod's containers answer."""
        condition = '-o=jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        return self.cluster.kubectl("get", pod, condition, "--ignore-not-found") == "True"

    def in_head(self, program: str, *words: str, stdin: str = "") -> str:
        """What a program of Python's prints in the head's pod."""
        (head,) = self.pods("head")
        command = ("exec", "-i", head, "--container=ray-head", "--", "python3", "-c", program, *words)
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

        def at_work() -> str | None:
            ready = (pod for pod in self.pods("worker") if self.is_ready(pod))
            return next((pod for pod in ready if self.cluster.kubectl("exec", pod, "--", *STOP)), None)

        self.cluster.wait(lambda: "on a Ray cluster with" in self.said(run_id), "curate", every=0.5)
        busy = self.cluster.wait(at_work, "a task", every=0.1)
        (chosen,) = [busy] if node_type == "worker" else self.pods(node_type)
        self.cluster.remove(chosen.removeprefix("pod/"), by_force=True)

    def said(self, run_id: str) -> str:
        """The log of curate; empty before its container has started."""
        try:
            return self.cluster.log(run_id, "curate")
        except RuntimeError:
            return ""


@pytest.fixture(scope="module")
def on_ray(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRay]:
    if not cluster.serves("ray.io"):
        pytest.skip("needs a cluster with KubeRay")
    if cluster.kubectl("get", NAME, "--ignore-not-found"):
        pytest.skip(f"{NAME} is there, and not of these tests")
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
    assert "on a Ray cluster with" in on_ray.said(run_id)
    assert on_ray.pods("worker"), "what waited for room brought none"


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
