"""Nights in a real Kubeflow Pipelines: runs by its API, faults by kubectl and on the lab's own node."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from cluster.real_cluster import OVER, RealCluster, absent
from servers.outage import Outage
from servers.s3 import S3Server
from torture.place import S3Place

from nights import variants
from nights.lab import Lab
from nights.plan import ON_A_CLUSTER, ON_A_LAB, Night
from nights.road import CHANNEL, FORM, LATE, OPTIONS, NotHere, RunEnd

OUTAGE_SECONDS, KUBELET_SECONDS, API_SECONDS, OVERLAP_SECONDS = 10.0, 20.0, 5.0, 30.0
"""How long what is stopped stays away; how long an old key still works after a new one is in the Secret."""
_LONGEST_RUN, _LONGEST_START = 3600.0, 1800.0
_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
T = TypeVar("T")


class ClusterRoad:
    """Runs in the cluster that KUBECONFIG and KFP_ENDPOINT name."""

    def __init__(self, place: S3Place, folder: Path, lab: Lab | None, outage: Outage | None) -> None:
        self.place, self.folder, self.lab, self.outage = place, folder, lab, outage
        self.name = "lab" if lab else "cluster"
        self.deck: Sequence[str] = ON_A_LAB if lab else ON_A_CLUSTER
        self.cluster = RealCluster()
        self.pipeline = variants.compiled(folder / "nights.yaml", self.cluster.image_prefix)
        self._key = (place.server.access_key, place.server.secret_key)
        self._apply(self._secret())

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
        self._check(fault)
        if fault == "lab":
            self._need_lab().down()
            self._need_lab().up()
        pipeline = self._pipeline(night, fault)
        form = {
            **FORM, "channel": CHANNEL, "store": self.place.uri, "data_sources": sources, "options": OPTIONS,
            "training_pod_cpu": variants.TRAINING_CPU, "training_pod_memory": variants.TRAINING_MEMORY,
        }  # fmt: skip
        run_id = patient(lambda: self.cluster.start(pipeline, form, f"night {night.number}"))
        met = self._disturb(run_id, night, fault)
        state = self._ended(run_id)
        if state == "SUCCEEDED":
            return RunEnd(is_done=True, met=met)
        return RunEnd(is_done=False, said=f"run {run_id} {state}: {self._why(run_id)}", met=met)

    def running(self) -> list[str]:
        found = [
            pod for run_id in self.cluster.runs for pod in patient(lambda r=run_id: self.cluster.pods(r))
        ]
        return [p["metadata"]["name"] for p in found if p["status"]["phase"] not in ("Succeeded", "Failed")]

    def _check(self, fault: str) -> None:
        if fault == "clock" and not variants.LIBRARY.exists():
            raise NotHere("needs libfaketime: apt-get install libfaketime")
        if fault == "store" and self.outage is None:
            raise NotHere("needs --host, this machine's address as pods see it")
        if fault in ("kubelet", "api", "secret", "lab"):
            self._need_lab()

    def _pipeline(self, night: Night, fault: str) -> Path:
        """What is run, with what is wrong in it."""
        if fault == "clock":
            self._apply(variants.clock_config_map())
            return variants.with_clock(self.pipeline, night.stage, night.clock)
        return variants.with_little_disk(self.pipeline, "train") if fault == "disk" else self.pipeline

    def _disturb(self, run_id: str, night: Night, fault: str) -> str:
        """Faults that come while a stage works; LATE where it no longer did."""
        deeds: dict[str, Callable[[str], None]] = {
            "pod": lambda pod: self.cluster.remove(pod, by_force=True),
            "store": self._store_away,
            "kubelet": lambda pod: self._daemon_away("kubelet", KUBELET_SECONDS),
            "api": lambda pod: self._daemon_away("apiserver", API_SECONDS),
            "secret": lambda pod: self._change_keys(),
        }
        if fault not in deeds:
            return ""
        pod = self._working(run_id, night.stage)
        if not pod:
            return LATE
        time.sleep(night.wait)
        try:
            deeds[fault](pod)
        except RuntimeError as error:
            return f"{LATE} ({str(error)[-200:]})"
        return ""

    def _working(self, run_id: str, stage: str) -> str:
        """Wait until a pod of the stage makes something; its name, or nothing where that has not happened."""
        end = time.monotonic() + _LONGEST_START
        while time.monotonic() < end:
            pods = patient(lambda: self.cluster.pods(run_id, stage))
            if pods and pods[-1]["status"]["phase"] == "Running":
                with contextlib.suppress(RuntimeError):
                    if f" {stage:<8} making " in self.cluster.log(run_id, stage):
                        return str(pods[-1]["metadata"]["name"])
            if pods and pods[-1]["status"]["phase"] in ("Succeeded", "Failed"):
                return ""
            if patient(lambda: self.cluster.run(run_id)).get("state") in OVER:
                return ""
            time.sleep(0.5)
        return ""

    def _store_away(self, pod: str) -> None:
        assert self.outage is not None
        self.outage.begin("status")
        time.sleep(OUTAGE_SECONDS)
        self.outage.end()

    def _daemon_away(self, daemon: str, seconds: float) -> None:
        self._need_lab().stop(daemon)
        time.sleep(seconds)
        self._need_lab().up("node")

    def _change_keys(self) -> None:
        """New keys into the Secret, and after a while the old ones are void."""
        lab, old = self._need_lab(), self._key[0]
        name = f"nights-{uuid.uuid4().hex[:8]}"
        self._key = (name, lab.new_key(name))
        self._apply(self._secret())
        if old.startswith("nights-"):
            time.sleep(OVERLAP_SECONDS)
            lab.remove_key(old)

    def _need_lab(self) -> Lab:
        if self.lab is None:
            raise NotHere("needs --lab: the node itself is stopped")
        return self.lab

    def _secret(self) -> str:
        endpoint = self.outage.endpoint if self.outage else self.place.server.endpoint
        return variants.store_secret(endpoint, self.place.server.region, *self._key)

    def _apply(self, manifest: str) -> None:
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)

    def own_keys(self) -> None:
        """Keys of the nights' own from the first night on, so that they can be made void."""
        if self.lab is not None:
            self._change_keys()

    def void_keys(self) -> None:
        """Make the last keys void too."""
        if self.lab is not None and self._key[0].startswith("nights-"):
            self.lab.remove_key(self._key[0])

    def _ended(self, run_id: str) -> str:
        """Wait for the end of a run; one that takes too long is terminated, as the end of a night does."""
        end = time.monotonic() + _LONGEST_RUN
        while (state := str(patient(lambda: self.cluster.run(run_id)).get("state", ""))) not in OVER:
            if time.monotonic() > end:
                patient(lambda: self.cluster.terminate(run_id))
                return f"terminated after {_LONGEST_RUN:.0f} s"
            time.sleep(1)
        return state

    def _why(self, run_id: str) -> str:
        states = patient(lambda: self.cluster.states(run_id))
        red = [task for task, state in states.items() if state == "FAILED"]
        red = [task for task in red if patient(lambda t=task: self.cluster.pods(run_id, t))]  # else no log
        try:
            return "; ".join(f"{task}: {self.cluster.log(run_id, task)[-1200:]}" for task in red) or str(
                states
            )
        except (RuntimeError, TimeoutError) as error:
            return f"{states}: {error}"


def patient(ask: Callable[[], T], seconds: float = 240) -> T:
    """The answer of a server that may be away for a while."""
    end = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except (RuntimeError, OSError):
            if time.monotonic() > end:
                raise
            time.sleep(2)


@contextmanager
def cluster_road(folder: Path, lab: Path | None, host: str) -> Iterator[ClusterRoad]:
    """Args:
    host: this machine's address as pods see it, where the proxy before the store listens; "" for none.

    Raises:
        NotHere: no cluster, or no way to its store.
    """
    missing = [name for name in _VARIABLES if not os.environ.get(name)]
    reason = absent() or (missing and f"{', '.join(missing)} not set (benchmarks/NOTES.md)")
    if reason:
        raise NotHere(f"needs a cluster: {reason}")
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    endpoint, access, secret = (os.environ[name] for name in _VARIABLES)
    region = os.environ.get("AWS_REGION", "us-east-1")
    server = S3Server(endpoint=endpoint, access_key=access, secret_key=secret, region=region)
    bucket, _, prefix = os.environ.get("YANMO_NIGHTS_STORE", "yanmo-nights/store").partition("/")
    place = S3Place(server, bucket, prefix, folder / "scratch")
    if not place.client.bucket_exists(bucket):
        place.client.make_bucket(bucket)
    host = host or (str(urlsplit(endpoint).hostname) if lab else "")
    with contextlib.ExitStack() as stack:
        outage = stack.enter_context(Outage(endpoint, host=host)) if host else None
        road = ClusterRoad(place, folder, Lab(lab) if lab else None, outage)
        road.own_keys()
        stack.callback(road.void_keys)
        stack.callback(road.cluster.clean)
        yield road
