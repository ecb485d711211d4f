"""Trainings on several nodes: what Kubernetes, Trainer 2.0 to 2.3 and Kueue make of the manifests."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from custom_resources import TRAINERS, faults_by, faults_of, is_custom, of_trainer
from rendered import MANIFESTS, check_restricted

from yanmo.common.errors import ExitCode
from yanmo.options.command_line import load
from yanmo_pipelines.cluster.launch.made_by import IndexedJobs, TrainJobs, resources_of
from yanmo_pipelines.cluster.launch.reap import ReapOptions
from yanmo_pipelines.cluster.launch.training import Training
from yanmo_pipelines.launch_options import DAY, LAUNCHED, NIGHT, LaunchOptions
from yanmo_pipelines.resources import IMAGES, labels_of

LAUNCHING, QUEUES = MANIFESTS / "components/launch", MANIFESTS / "components/queue"
OWNER = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "w", "uid": "u-1"}
TRAINING = Training(
    name="yanmo-train-0123456789ab",
    arguments=("train", "--store=s3://bucket/prefix", "--options=train.steps=20"),
    nodes=4,
    ranks=8,
    resources={"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"},
    labels={
        **labels_of("train"),
        LAUNCHED: "0123456789ab",
        "kueue.x-k8s.io/queue-name": "yanmo",
        "kueue.x-k8s.io/priority-class": NIGHT,
    },
    annotations={"yanmo.dev/run-id": "r-1"},
    runtime="yanmo-train",
    owners=(OWNER,),
)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def runtime() -> dict[str, Any]:
    (found,) = documents(LAUNCHING / "runtime.yaml")
    return found


def node_pod() -> dict[str, Any]:
    (job,) = runtime()["spec"]["template"]["spec"]["replicatedJobs"]
    return dict(job["template"]["spec"]["template"])


def named(kind: str) -> dict[str, dict[str, Any]]:
    found = [each for path in sorted(LAUNCHING.glob("*.yaml")) for each in documents(path)]
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind and "metadata" in each}


@pytest.mark.parametrize("version", TRAINERS)
def test_every_trainer_reads_the_trainjob_and_our_runtime_field_by_field(version: str) -> None:
    (made,) = TrainJobs("/p").objects(TRAINING)
    for each in (made, runtime()):
        assert not list(faults_by(of_trainer(version)[each["kind"]], each))


def test_trainers_2_2_and_later_take_a_number_of_ranks_alone() -> None:
    (made,) = TrainJobs("/p").objects(TRAINING)
    made["spec"]["trainer"]["numProcPerNode"] = "auto"
    refused = [v for v in TRAINERS if list(faults_by(of_trainer(v)["TrainJob"], made))]
    assert refused == ["2.2", "2.3"]


@pytest.mark.parametrize("version", TRAINERS)
def test_a_launch_says_cpu_memory_and_gpus_and_keeps_the_runtimes_other_resources(version: str) -> None:
    """Trainer puts a TrainJob's resources in the place of all that the runtime says of them."""
    patched = runtime()
    (container,) = patched["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"][
        "spec"
    ]["containers"]
    for kind in ("requests", "limits"):
        container["resources"][kind] |= {"nvidia.com/gpu": "4", "rdma/hca": 2}
    without_gpus = Training(**{**vars(TRAINING), "resources": {"cpu": "1", "memory": "3Gi"}})
    for training in (TRAINING, without_gpus):
        (made,) = TrainJobs("/p", resources=resources_of(patched)).objects(training)
        given = made["spec"]["trainer"]["resourcesPerNode"]
        assert given["requests"] == given["limits"] == {**training.resources, "rdma/hca": "2"}
        assert not list(faults_by(of_trainer(version)["TrainJob"], made))


def test_every_object_of_kubernetes_and_kueue_is_known_field_by_field() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    files = [*LAUNCHING.glob("*.yaml"), *QUEUES.glob("*.yaml")]
    found = [d for path in files if path.stem not in ("kustomization", "runtime") for d in documents(path)]
    assert len(found) == 15
    for each in found:
        if is_custom(each):
            assert not list(faults_of(each)), each["kind"]
        else:
            for version in ("1.30", "1.34"):
                validate.validate(each, version, strict=True)


def test_without_trainer_the_nodes_are_pods_of_the_stage_train() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    env = [{"name": "YANMO_OPTIONS", "value": "x"}, {"name": "YANMO_METRICS_ADDRESS", "value": "all"}]
    container = {"name": "stage", "image": "i", "args": ["old"], "env": env}
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    template = {"spec": {"jobTemplate": {"spec": {"template": pod, "backoffLimit": 6}}}}
    before = copy.deepcopy(template)
    job, service = IndexedJobs(template, "/p").objects(TRAINING)
    assert template == before, "the template is the cluster's"
    for each in (job, service):
        validate.validate(each, "1.30", strict=True)
    spec, pod = job["spec"], job["spec"]["template"]
    assert spec["completions"] == spec["parallelism"] == 4 and spec["completionMode"] == "Indexed"
    (container,) = pod["spec"]["containers"]
    said = {one["name"]: one.get("value") for one in container["env"]}
    assert said["PET_NNODES"] == "4" and said["PET_NPROC_PER_NODE"] == "8" and "YANMO_OPTIONS" not in said
    assert said["PET_MASTER_ADDR"] == f"{TRAINING.name}-0.{TRAINING.name}"
    assert said["YANMO_METRICS_ADDRESS"] == "all"
    assert pod["spec"]["subdomain"] == service["metadata"]["name"] and pod["metadata"]["labels"]["a"] == "b"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8" and container["args"][0] == "train"


def test_what_no_retry_mends_ends_all_nodes_and_the_rest_starts_them_again() -> None:
    spec = runtime()["spec"]["template"]["spec"]
    (rule,) = spec["failurePolicy"]["rules"]
    assert rule["action"] == "FailJobSet" and rule["onJobFailureReasons"] == ["PodFailurePolicy"]
    assert rule["name"].isalpha(), "JobSet's webhook refuses a dash"
    job = spec["replicatedJobs"][0]["template"]["spec"]
    (for_good,) = job["podFailurePolicy"]["rules"]
    codes = set(for_good["onExitCodes"]["values"])
    assert for_good["action"] == "FailJob" and job["backoffLimit"] == 0
    ours = {int(code) for code in ExitCode}
    assert codes & ours == ours - {ExitCode.DONE, ExitCode.RETRY} and not codes & {137, 143}
    assert "ttlSecondsAfterFinished" not in job, "Trainer up to 2.3 starts a finished training again then"


def test_a_node_has_the_names_by_which_trainer_finds_it_and_the_restricted_standard() -> None:
    (job,) = runtime()["spec"]["template"]["spec"]["replicatedJobs"]
    assert job["name"] == "node"
    assert job["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pod = node_pod()
    assert (
        labels_of("train").items() <= pod["metadata"]["labels"].items()
        and LAUNCHED in pod["metadata"]["labels"]
    )
    (container,) = pod["spec"]["containers"]
    assert container["name"] == "node" and container["image"] == IMAGES["train"]
    assert "command" not in container and "args" not in container
    mounts = {one["name"] for one in container["volumeMounts"]}
    assert mounts == {one["name"] for one in pod["spec"]["volumes"]}
    for each in [pod, *(c["spec"]["jobTemplate"]["spec"]["template"] for c in named("CronJob").values())]:
        check_restricted(each["spec"])
        (inside,) = each["spec"]["containers"]
        assert inside["resources"]["requests"] == inside["resources"]["limits"]


def test_the_cron_jobs_are_command_lines_of_launch() -> None:
    found = named("CronJob")
    (launch,) = found["stage-launch"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    verb, *flags = launch["args"]
    placed = [flag.replace("$(YANMO_INPUTS)", "latest").replace("$(YANMO_RUN_ID)", "r") for flag in flags]
    placed = [flag.replace("$(YANMO_DEFAULTS)", "curate.sources=bundled train.steps=3") for flag in placed]
    placed = [flag.replace("$(YANMO_OPTIONS)", "launch.nodes=8 train.steps=5") for flag in placed]
    options = load(LaunchOptions, placed, "yanmo launch")
    assert verb == "launch" and options.nodes == 8 and options.training[1].endswith("train.steps=5")
    assert launch["image"] == IMAGES["cluster"] and found["stage-launch"]["spec"]["suspend"] is True
    reap = found["launch-reap"]["spec"]
    (container,) = reap["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["launch", "reap"]
    load(ReapOptions, container["args"][2:], "yanmo launch reap")
    assert "suspend" not in reap and reap["concurrencyPolicy"] == "Forbid"


def test_neither_account_may_more_than_its_work_needs() -> None:
    roles = named("Role")
    assert roles.keys() == {"yanmo-launcher", "yanmo-reaper"}
    for role in roles.values():
        for rule in role["rules"]:
            assert not {"*", "secrets", "pods/exec"} & {
                *rule["resources"],
                *rule["apiGroups"],
                *rule["verbs"],
            }
    reaper = {
        (r, v) for rule in roles["yanmo-reaper"]["rules"] for r in rule["resources"] for v in rule["verbs"]
    }
    assert not {v for _, v in reaper} & {"create", "patch", "update"}
    assert {r for r, v in reaper if v == "delete"} == {"trainjobs", "jobs"}


def test_day_work_makes_nights_give_way() -> None:
    found = [each for path in QUEUES.glob("*.yaml") for each in documents(path)]
    classes = {e["metadata"]["name"]: e["value"] for e in found if e["kind"] == "WorkloadPriorityClass"}
    assert classes.keys() == {DAY, NIGHT} and classes[DAY] > classes[NIGHT]
    (cluster_queue,) = [e for e in found if e["kind"] == "ClusterQueue"]
    assert cluster_queue["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority"
    (local,) = [e for e in found if e["kind"] == "LocalQueue"]
    assert local["spec"]["clusterQueue"] == cluster_queue["metadata"]["name"]
    flavors = {e["metadata"]["name"] for e in found if e["kind"] == "ResourceFlavor"}
    (group,) = cluster_queue["spec"]["resourceGroups"]
    assert {one["name"] for one in group["flavors"]} == flavors
    assert {one["name"] for one in group["flavors"][0]["resources"]} == set(group["coveredResources"])
