"""Trainings on several nodes as a real cluster told of them: Trainer 2.3.0, JobSet 0.12.0, Kueue 0.18.2."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from servers.replayed import answers, one

from yanmo.common.errors import DataError, EnvironmentFault, StorageError, exit_code
from yanmo.store.manifest import Reference
from yanmo.store.output import Pause, PausedOutput
from yanmo.store.runs.failure_card import details_of
from yanmo_pipelines.cluster.launch.follow import Follower
from yanmo_pipelines.cluster.launch.made_by import TrainJobs

TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/kubeflow/trainjobs"
PODS = "/api/v1/namespaces/kubeflow/pods?limit=500&labelSelector=jobset.sigs.k8s.io%2Fjobset-name%3Dt1"
EVENTS = "/api/v1/namespaces/kubeflow/events?limit=500&fieldSelector=type%3DWarning"
Recorded = list[dict[str, Any]]


@pytest.fixture
def followed(cluster: Any, caplog: Any) -> Callable[..., Any]:
    """What a follower gives back, or the error it raises, and what it said."""

    def follow(recorded: Recorded, name: str, namespace: str = "kubeflow", nodes: int = 2) -> Any:
        with caplog.at_level(logging.INFO):
            api, server = cluster(recorded, namespace)
            path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs"
            try:
                found: Any = Follower(api, TrainJobs(path), name, nodes).to_its_end(0.001)
            except Exception as error:
                found = error
        return found, [record.getMessage() for record in caplog.records], server

    return follow


def recorded(name: str) -> tuple[Recorded, str]:
    """A recording, and the name of the TrainJob in it."""
    found = answers(name)
    return found, re.search(r"yanmo-train-\w{12}", json.dumps(found))[0]  # type: ignore[index]


def test_the_models_reference_is_node_0s_last_word_and_its_log_is_shown(followed: Any, capfd: Any) -> None:
    told, name = recorded("launch-done")
    found, said, _ = followed(told, name, "launch-try")
    assert isinstance(found, Reference) and found.stage == "train"
    assert said.count("all 2 nodes run") == 1 and "node 0 ended with 0" in said
    assert any(re.fullmatch(r"node 1 waits: .*Insufficient cpu.*", line) for line in said)
    assert not any("start again" in line for line in said)
    shown = capfd.readouterr().err
    assert (
        shown.count("backend=deepspeed ranks=2") == 1
        and shown.count(f"committed train/{found.key[:12]}") == 1
    )


def test_a_queue_without_room_is_named_with_kueues_reason_and_a_lost_api_waited_for(followed: Any) -> None:
    told, name = recorded("launch-queued")
    found, said, _ = followed(told, name, "launch-try")
    assert isinstance(found, Reference)
    waits = [line for line in said if line.startswith("waits in queue yanmo: ")]
    assert any("maximum capacity" in line and "more than the queue will ever have" in line for line in waits)
    assert len(waits) == len(set(waits)), "each reason once"
    assert any("the training goes on without us" in line for line in said)


def test_a_node_that_lacks_torch_ends_the_launch_with_its_code_card_and_events(followed: Any) -> None:
    told, name = recorded("launch-red")
    error, said, _ = followed(told, name, "launch-try")
    assert isinstance(error, EnvironmentFault) and exit_code(error) == 78
    assert str(error).startswith("torch is not installed here, nor torchrun") and "node 0 of 2, pod" in str(
        error
    )
    assert any(line.startswith("event: Job") and "PodFailurePolicy" in line for line in said)
    assert "node 0: train failed with exit code 78 (the machine lacks something)" in said
    found = details_of(error)
    assert found and found.where.startswith("node 0 of 2, pod ")


def pod(node: int, code: int, *, reason: str = "Error", message: str = "", **status: Any) -> dict[str, Any]:
    """A pod of the TrainJob t1 that ended."""
    end = {"exitCode": code, "reason": reason, "message": message}
    return {
        "metadata": {
            "name": f"t1-node-0-{node}-x",
            "labels": {"batch.kubernetes.io/job-completion-index": str(node)},
            "creationTimestamp": "2026-11-23T20:00:00Z",
        },
        "spec": {"nodeName": f"machine-{node}"},
        "status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": end}}], **status},
    }


def trainjob(state: str = "Failed", **meta: Any) -> dict[str, Any]:
    conditions = [{"type": state, "status": "True", "reason": "X", "message": "why"}] if state else []
    found = {"name": "t1", "uid": "u1", "creationTimestamp": "2026-11-23T20:00:00Z", **meta}
    return {"metadata": found, "spec": {}, "status": {"conditions": conditions}}


def cluster_with(*pods: dict[str, Any], state: str = "Failed", events: Any = ()) -> Recorded:
    log = "2026-11-23T20:00:01.0Z 20:00:01 train    the last line of node {}"
    logs = [
        one(
            f"GET /api/v1/namespaces/kubeflow/pods/t1-node-0-{n}-x/log?timestamps=true",
            200,
            log.format(n),
            "text",
        )
        for n in range(3)
    ]
    return [
        one(f"GET {TRAINJOBS}/t1", 200, trainjob(state)),
        one(f"GET {PODS}", 200, {"items": list(pods)}),
        one(f"GET {EVENTS}", 200, {"items": list(events)}),
        *logs,
    ]


CARD = "train failed with exit code 65 (unusable data)\nwhy: shard 3 is damaged\nto run it again: x"
EVICTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}
ENDS = {
    "data before again": ([pod(0, 75), pod(1, 65, message=CARD)], 65, "shard 3 is damaged (node 1 of 2"),
    "a bug before data": (
        [pod(0, 70, message="why: boom"), pod(1, 65, message=CARD)],
        70,
        "boom (node 0 of 2",
    ),
    "memory by name": ([pod(0, 75), pod(1, 137, reason="OOMKilled")], 78, "out of memory (OOMKilled)"),
    "killed": ([pod(0, 137), pod(1, 75)], 75, "killed (exit code 137) (node 0"),
    "preempted by name": ([pod(0, 137, **EVICTED), pod(1, 75)], 75, "PreemptionByScheduler (node 0 of 2"),
    "evicted before it began": (
        [{**pod(1, 0), "status": {"phase": "Failed", "reason": "Evicted", "message": "low on disk"}}],
        75,
        "Evicted low on disk (node 1 of 2",
    ),
    "no yanmo in the image": (
        [pod(0, 127, message="exec: train: not found")],
        70,
        "exit code 127, which is none",
    ),
    "no pod at all": ([], 75, "failed before a pod of it began"),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_gravest_end_of_all_nodes_is_the_launchs(followed: Any, case: str) -> None:
    pods, code, why = ENDS[case]
    error, _, _ = followed(cluster_with(*pods), "t1")
    assert exit_code(error) == code and why in str(error), str(error)


def test_the_last_lines_of_a_failed_node_other_than_0_are_shown(followed: Any, capfd: Any) -> None:
    error, said, _ = followed(cluster_with(pod(0, 75), pod(1, 65, message=CARD)), "t1")
    assert isinstance(error, DataError)
    shown = capfd.readouterr().err
    assert "node 1: 20:00:01 train    the last line of node 1" in shown
    assert shown.count("the last line of node 0") == 1 and "node 1: why: shard 3 is damaged" in said


def test_lines_of_a_log_are_shown_once_however_often_it_is_read(followed: Any, capfd: Any) -> None:
    logs = "/api/v1/namespaces/kubeflow/pods/t1-node-0-0-x/log"
    running = {**pod(0, 0), "status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}}
    first = "2026-11-23T20:00:00.1Z step 1\n2026-11-23T20:00:00.2Z step 2\n"
    again = first.splitlines()[1] + "\n2026-11-23T20:00:01Z step 3\n"
    since = "sinceTime=2026-11-23T20%3A00%3A00.2Z&timestamps=true"
    told = [
        one(f"GET {TRAINJOBS}/t1", 200, trainjob("")),
        one(f"GET {TRAINJOBS}/t1", 200, trainjob("Complete")),
        one(f"GET {PODS}", 200, {"items": [running]}),
        one(f"GET {EVENTS}", 200, {"items": []}),
        one(f"GET {logs}?timestamps=true", 200, first, "text/plain"),
        one(f"GET {logs}?{since}", 200, again, "text/plain"),
    ]
    followed(told, "t1")
    shown = [line for line in capfd.readouterr().err.splitlines() if line.startswith("step")]
    assert shown == ["step 1", "step 2", "step 3"]


def test_what_node_0_says_of_a_pause_is_passed_on(followed: Any) -> None:
    paused = PausedOutput.of("train", "ab" * 32, Pause(where="step 9 of 20", why="--night 21:00-08:00"))
    told = cluster_with(pod(0, 0, message=paused.to_json()), pod(1, 0), state="Complete")
    found, _, _ = followed(told, "t1")
    assert found == paused


def test_a_word_that_is_no_result_blames_the_image_and_none_is_looked_for_again(followed: Any) -> None:
    error, _, _ = followed(cluster_with(pod(0, 0, message="hello"), state="Complete"), "t1")
    assert isinstance(error, EnvironmentFault) and "of another version of Yanmo" in str(error)
    error, _, _ = followed(cluster_with(pod(1, 0), state="Complete"), "t1")
    assert isinstance(error, StorageError) and exit_code(error) == 75


def test_a_training_that_somebody_deleted_is_one_for_the_next_try(followed: Any) -> None:
    error, _, _ = followed([one(f"GET {TRAINJOBS}/t1", 404, {"message": "not found"})], "t1")
    assert exit_code(error) == 75 and "was deleted while it was followed" in str(error)


def test_why_no_pod_is_made_is_said_once_and_only_of_this_training(followed: Any) -> None:
    def event(name: str, at: str, message: str) -> dict[str, Any]:
        thing = {"kind": "JobSet", "name": name}
        return {"involvedObject": thing, "reason": "Denied", "message": message, "lastTimestamp": at}

    events = [
        event("t1", "2026-11-23T20:00:05Z", "exceeded quota"),
        event("t1", "2026-11-23T19:00:00Z", "of an earlier one of the name"),
        event("t2", "2026-11-23T20:00:05Z", "of another"),
    ]
    told = cluster_with(events=events, state="")
    told = [{**told[0], "times": 3}, *told, one(f"GET {TRAINJOBS}/t1", 404, {"message": "gone"})]
    _, said, _ = followed(told, "t1")
    assert [line for line in said if "Denied" in line] == ["JobSet t1: Denied: exceeded quota"]
