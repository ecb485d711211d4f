"""Nights in a real Kubeflow Pipelines: runs by its API, faults by kubectl and a proxy before the store.

KUBECONFIG and KFP_ENDPOINT name the cluster (tests/cluster/README.md), AWS_ENDPOINT_URL, its keys and
YANMO_CHAOS_STORE (bucket/prefix) the store as this machine sees it, and YANMO_CHAOS_HOST this machine's
address as pods see it, where the proxy listens.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import yaml
from cluster.real_cluster import OVER, RealCluster, absent
from servers.outage import Outage
from servers.s3 import S3Server

from chaos.nights.checks import CHANNEL
from chaos.nights.here import FORM, LATE, OPTIONS, OUTAGE_SECONDS, RunEnd
from chaos.nights.plan import ON_A_CLUSTER, Night
from chaos.place import S3Place
from chaos.plan import Skip
from yanmo_pipelines.compile import compile_pipeline, load_pipeline
from yanmo_pipelines.resources import COLUMNS, SCRATCH, SMALL

SECRET = "yanmo-chaos"
"""Names the store of the nights: endpoint and keys."""
SHORT_WAITS = {"YANMO_WAIT_SECONDS": "120", "YANMO_S3_RETRY_SECONDS": "60"}
"""A pod waits six hours for what it lacks in a night of eleven; in a night of four minutes, two minutes."""
_LONGEST_START = 1800.0
_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def compiled(path: Path, image_prefix: str, *, little_disk: bool = False) -> Path:
    """The language-model pipeline, with rows for a small node, the nights' own Secret and short waits.

    Args:
        little_disk: whether scratch of the training is in memory and has a megabyte: a real ENOSPC.
    """
    column = {stage: replace(row, cpu="500m") for stage, row in COLUMNS[SMALL].items()}
    compile_pipeline(load_pipeline("language_model", column, SECRET), path, image_prefix)
    spec, platform = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    for executor in spec["deploymentSpec"]["executors"].values():
        known = {variable["name"]: variable for variable in executor["container"]["env"]}
        for name, value in SHORT_WAITS.items():
            known.setdefault(name, {"name": name})["value"] = value
        executor["container"]["env"] = list(known.values())
    if little_disk:
        of_train = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-train"]
        scratch = next(mount for mount in of_train["emptyDirMounts"] if mount["mountPath"] == SCRATCH)
        scratch |= {"medium": "Memory", "sizeLimit": "1Mi"}
    path.write_text(yaml.safe_dump_all([spec, platform], sort_keys=False), encoding="utf-8")
    return path


class OnACluster:
    """Runs in the cluster that KUBECONFIG and KFP_ENDPOINT name."""

    deck: Sequence[str] = ON_A_CLUSTER

    def __init__(self, place: S3Place, folder: Path, outage: Outage | None) -> None:
        self.place, self.folder, self.outage = place, folder, outage
        self.cluster = RealCluster()
        prefix = self.cluster.image_prefix
        self._pipeline = compiled(folder / "nights.yaml", prefix)
        self._with_little_disk = compiled(folder / "little-disk.yaml", prefix, little_disk=True)
        server = place.server
        data = {
            "endpoint_url": outage.endpoint if outage else server.endpoint,
            "region": server.region,
            "access_key_id": server.access_key,
            "secret_access_key": server.secret_key,
        }
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": data}
        self.cluster.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(secret)
        )

    def lay(self, files: dict[str, bytes]) -> str:
        client, bucket, prefix = self.place.client, self.place.bucket, f"{self.place.prefix}-data/"
        listed = {item.object_name: item.etag for item in client.list_objects(bucket, prefix=prefix)}
        wanted = {prefix + name: data for name, data in files.items()}
        for name in listed.keys() - wanted.keys():
            client.remove_object(bucket, name)
        for name, data in wanted.items():
            if (listed.get(name) or "").strip('"') != hashlib.md5(data, usedforsecurity=False).hexdigest():
                client.put_object(bucket, name, io.BytesIO(data), len(data))
        return f"s3://{bucket}/{prefix.rstrip('/')}"

    def run(self, night: Night, sources: str, *, is_faulty: bool) -> RunEnd:
        fault = night.fault if is_faulty else ""
        if fault == "store" and self.outage is None:
            raise Skip("needs YANMO_CHAOS_HOST, this machine's address as pods see it")
        pipeline = self._with_little_disk if fault == "disk" else self._pipeline
        form = {
            **FORM,
            "channel": CHANNEL,
            "store": self.place.uri,
            "data_sources": sources,
            "options": OPTIONS,
            "training_pod_cpu": "700m",
            "training_pod_memory": "2Gi",
        }
        run_id = self.cluster.start(pipeline, form, f"night {night.number}")
        met = self._disturb(run_id, night) if fault in ("pod", "store") else ""
        state = self.cluster.ended(run_id)
        if state == "SUCCEEDED":
            return RunEnd(is_done=True, met=met)
        return RunEnd(is_done=False, said=f"run {run_id} {state}: {self.cluster.states(run_id)}", met=met)

    def running(self) -> list[str]:
        found = [pod for run_id in self.cluster.runs for pod in self.cluster.pods(run_id)]
        return [p["metadata"]["name"] for p in found if p["status"]["phase"] not in ("Succeeded", "Failed")]

    def _disturb(self, run_id: str, night: Night) -> str:
        """Faults that come while a stage works; LATE where it no longer did."""
        pod = self._working(run_id, night.stage)
        if not pod:
            return LATE
        time.sleep(night.wait)
        if night.fault == "store" and self.outage is not None:
            self.outage.begin("status")
            time.sleep(OUTAGE_SECONDS)
            self.outage.end()
            return ""
        try:
            self.cluster.remove(pod, by_force=True)
        except RuntimeError as error:
            return f"{LATE} ({str(error)[-200:]})"
        return ""

    def _working(self, run_id: str, stage: str) -> str:
        """Wait until a pod of the stage makes something; its name, or nothing where that has not happened."""
        end = time.monotonic() + _LONGEST_START
        while time.monotonic() < end:
            pods = self.cluster.pods(run_id, stage)
            if pods and pods[-1]["status"]["phase"] == "Running":
                with contextlib.suppress(RuntimeError):
                    if f" {stage:<8} making " in self.cluster.log(run_id, stage):
                        return str(pods[-1]["metadata"]["name"])
            if pods and pods[-1]["status"]["phase"] in ("Succeeded", "Failed"):
                return ""
            if self.cluster.run(run_id).get("state") in OVER:
                return ""
            time.sleep(0.5)
        return ""


@contextmanager
def on_a_cluster(folder: Path) -> Iterator[OnACluster]:
    """The cluster as a road, with an empty store.

    Raises:
        Skip: no cluster, or no way to its store.
    """
    missing = [name for name in (*_VARIABLES, "YANMO_CHAOS_STORE") if not os.environ.get(name)]
    if reason := absent() or (missing and f"{', '.join(missing)} not set (benchmarks/NOTES.md)"):
        raise Skip(f"needs a cluster: {reason}")
    endpoint, access, secret = (os.environ[name] for name in _VARIABLES)
    region = os.environ.get("AWS_REGION", "us-east-1")
    server = S3Server(endpoint=endpoint, access_key=access, secret_key=secret, region=region)
    place = S3Place.new(server, os.environ["YANMO_CHAOS_STORE"], folder)
    host = os.environ.get("YANMO_CHAOS_HOST")
    with contextlib.ExitStack() as stack:
        outage = stack.enter_context(Outage(endpoint, host=host)) if host else None
        stack.callback(place.remove)
        road = OnACluster(place, folder, outage)
        stack.callback(road.cluster.clean)
        yield road
