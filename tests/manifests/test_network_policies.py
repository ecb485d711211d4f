"""The policies let through what was seen on a real cluster and nothing else that we can think of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from network_policies import Peer, allowed, selects
from rendered import OVERLAYS, named

from yanmo_pipelines.launch_options import LAUNCHED
from yanmo_pipelines.resources import METRICS_PORT, labels_of

RECORDED = json.loads((Path(__file__).parent / "connections.json").read_text(encoding="utf-8"))
"""Written by `git show 96a81c2f:tests/cluster/connections.py` on a cluster that stored these policies and did
not enforce them, while a pipeline of KFP 2.17.0 and Jobs of manifests/ ran."""
SEAWEEDFS = Peer(labels={"app": "seaweedfs"}, namespace="kubeflow"), 8333
API_SERVER = Peer(address="203.0.113.6")
"""Of Kubernetes; a documentation's address (RFC 5737), as policies can only know its port."""
INSTALLED: dict[str, tuple[Peer, int]] = {
    "kubeflow/seaweedfs:9000": SEAWEEDFS,
    "kubeflow/minio-service:9000": SEAWEEDFS,
    "kubeflow/ml-pipeline:8887": (Peer(labels={"app": "ml-pipeline"}, namespace="kubeflow"), 8887),
    "kubeflow/ml-pipeline:8888": (Peer(labels={"app": "ml-pipeline"}, namespace="kubeflow"), 8888),
    "kubeflow/metadata-grpc-service:8080": (
        Peer(labels={"component": "metadata-grpc-server"}, namespace="kubeflow"),
        8080,
    ),
    "kube-system/kube-dns:53": (Peer(labels={"k8s-app": "kube-dns"}, namespace="kube-system"), 53),
    "default/kubernetes:443": (API_SERVER, 6443),
}
"""Service -> its pods and their port where KFP's own manifests (2.17.0) installed it, and kubeadm DNS. On the
cluster of the recording all of these were programs of the node."""
JOB = Peer(labels={**labels_of("train"), "batch.kubernetes.io/controller-uid": "any"}, namespace="kubeflow")
TASK = Peer(
    labels={**labels_of("train"), "pipelines.kubeflow.org/v2_component": "true"}, namespace="kubeflow"
)

SCRAPER = Peer(
    labels={"app": "prometheus"}, namespace="watching", namespace_labels={"yanmo.dev/scrapes": "true"}
)


def policies(overlay: str) -> list[dict[str, Any]]:
    return list(named(overlay, "NetworkPolicy").values())


def _ours(each: dict[str, Any]) -> bool:
    return any("app.kubernetes.io/part-of" in each[end].get("labels", {}) for end in ("from", "to"))


def _end(end: dict[str, Any]) -> Peer:
    return Peer(labels=end["labels"], namespace=end["namespace"])


@pytest.mark.parametrize("each", [e for e in RECORDED if _ours(e)], ids=lambda e: str(RECORDED.index(e)))
def test_every_connection_that_was_seen_is_let_through(each: dict[str, Any]) -> None:
    if "service" in each["to"]:
        target, port = INSTALLED[each["to"]["service"]]
    else:
        target, port = _end(each["to"]), each["port"]
    assert allowed(policies("small"), _end(each["from"]), target, port, each["protocol"]), each


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        (JOB, API_SERVER, 6443),
        (JOB, Peer(address="169.254.169.254"), 80),
        (JOB, Peer(address="198.51.100.7"), 443),
        (JOB, Peer(labels={"app": "ml-pipeline"}, namespace="kubeflow"), 8888),
        (JOB, Peer(labels={"app": "mysql"}, namespace="kubeflow"), 3306),
        (JOB, SEAWEEDFS[0], 9333),
        (JOB, JOB, METRICS_PORT),
        (TASK, Peer(labels={"app": "mysql"}, namespace="kubeflow"), 3306),
        (TASK, Peer(address="169.254.169.254"), 80),
        (Peer(labels={"app": "any"}, namespace="kubeflow"), JOB, METRICS_PORT),
        (Peer(labels={"app": "any"}, namespace="elsewhere"), TASK, METRICS_PORT),
    ],
)
def test_all_else_is_refused(source: Peer, target: Peer, port: int) -> None:
    assert not allowed(policies("small"), source, target, port)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_prometheus_reaches_the_metrics_and_every_overlay_lets_its_pods_reach_names_and_a_store(
    overlay: str,
) -> None:
    found = policies(overlay)
    space = found[0]["metadata"]["namespace"]
    job = Peer(labels=JOB.labels, namespace=space)
    assert allowed(found, SCRAPER, job, METRICS_PORT)
    assert allowed(found, job, *INSTALLED["kube-system/kube-dns:53"], "UDP")
    stores = [
        SEAWEEDFS,
        (Peer(address="198.51.100.7"), 443),
        (Peer(labels={"app.kubernetes.io/name": "yanmo-s3"}, namespace=space), 8333),
    ]
    assert [allowed(found, job, *store) for store in stores].count(True) == 1, (
        "one store, and no other way out"
    )
    assert not allowed(found, job, Peer(address="169.254.169.254"), 80)


def _launched(space: str, launch: str = "6fa3787a8ee4") -> Peer:
    return Peer(labels={**labels_of("train"), LAUNCHED: launch}, namespace=space)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_nobody_but_prometheus_reaches_a_pod_of_any_overlay_and_nodes_of_a_training_each_other(overlay):
    """The rendezvous and the collectives of a training on several nodes have no lock of their own."""
    found = policies(overlay)
    space = found[0]["metadata"]["namespace"]
    task = {**labels_of("train"), "pipelines.kubeflow.org/v2_component": "true"}
    job, task_of_kfp = (Peer(labels=labels, namespace=space) for labels in (labels_of("train"), task))
    node, other = _launched(space), _launched(space, "runtime")
    strangers = [
        *(Peer(labels={"app": "any"}, namespace=where) for where in (space, "elsewhere")),
        *(Peer(address="203.0.113.9"), SCRAPER, job, task_of_kfp, _launched("elsewhere")),
    ]
    into = [policy for policy in found if "Ingress" in policy["spec"]["policyTypes"]]
    for target in (job, task_of_kfp, node):
        assert allowed(into, SCRAPER, target, METRICS_PORT)
        for stranger in strangers:
            assert not allowed(into, stranger, target, 29500), stranger
            assert stranger == SCRAPER or not allowed(into, stranger, target, METRICS_PORT), stranger
    assert allowed(into, other, node, 29500) and allowed(into, node, other, 41234)
    assert not allowed(into, node, job, 29500)


def test_selectors_and_ranges_are_read_as_kubernetes_reads_them() -> None:
    exists = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    other = {
        "matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}],
        "matchLabels": {"c": "d"},
    }
    assert selects({}, {}) and selects(exists, {"a": ""}) and not selects(exists, {"b": "a"})
    assert selects(other, {"c": "d"}) and not selects(other, {"c": "d", "a": "b"})
    policy = {
        "metadata": {"namespace": "n"},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Egress"],
            "egress": [
                {"to": [{"podSelector": {"matchLabels": {"a": "b"}}}], "ports": [{"port": 10, "endPort": 12}]}
            ],
        },
    }
    source, target = Peer(namespace="n"), Peer(namespace="n", labels={"a": "b"})
    assert [allowed([policy], source, target, port) for port in (9, 10, 12, 13)] == [False, True, True, False]
    assert not allowed([policy], source, Peer(namespace="m", labels={"a": "b"}), 10), (
        "of its own namespace only"
    )
    assert not allowed([policy], source, target, 10, "UDP")
    assert allowed([policy], Peer(namespace="m"), target, 10), "no policy is about it"
