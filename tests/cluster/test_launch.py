"""Trainings on several nodes by kubectl, as docs/how-to/several-nodes.md has it: CronJob stage-launch."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
import yaml
from jobs import OVERLAY, Jobs
from real_cluster import TINY, RealCluster, small_form

from yanmo_pipelines.compile import compile_pipeline, load_pipeline

MANIFESTS = OVERLAY.parents[1]
NODES = "launch.nodes=2 launch.cpu=600m launch.memory=1700Mi"
"""Two of these and the launcher fit a node of 2 cores and 4 GB."""


@pytest.fixture(scope="module")
def launching(cluster: RealCluster, templates: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The components applied that this cluster can have; options of the nodes."""
    names, options = ["launch"], NODES
    if cluster.serves("kueue.x-k8s.io"):
        names, options = [*names, "queue"], f"{options} launch.queue=yanmo"
    folder = tmp_path_factory.mktemp("manifests")
    for name in ("base", "components", "overlays"):
        shutil.copytree(MANIFESTS / name, folder / name)
    if not cluster.serves("trainer.kubeflow.org"):
        path = folder / "components/launch/kustomization.yaml"
        path.write_text(path.read_text(encoding="utf-8").replace("  - runtime.yaml\n", ""), encoding="utf-8")
    here = folder / "overlays/here"
    here.mkdir()
    text = {
        "namespace": cluster.namespace,
        "resources": ["../small"],
        "components": [f"../../components/{name}" for name in names],
    }
    (here / "kustomization.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    cluster.kubectl("apply", f"--kustomize={here}")
    return options


@pytest.fixture(scope="module")
def jobs(cluster: RealCluster, launching: str) -> Iterator[Jobs]:
    """A channel with a token cache."""
    found = Jobs(cluster, small_form())
    found.variables["YANMO_OPTIONS"] += f" {TINY} {launching}"
    try:
        for stage in ("curate", "balance", "tokenize"):
            found.run(stage)
        yield found
    finally:
        found.clean()


def named(said: str) -> str:
    """The object that a launch made, or would make."""
    found = re.search(r"^(?:.*made (?:Train)?Job |  name: )(yanmo-train-[0-9a-f]{12})\b", said, re.M)
    assert found, said
    return found[1]


def left(cluster: RealCluster, name: str, kinds: str) -> list[str]:
    """What is there of a training; JobSet puts no label of ours on its pods."""
    return [one for one in cluster.kubectl("get", kinds, "--output=name").split() if f"/{name}" in one]


def hold(cluster: RealCluster, policy: str) -> None:
    """Whether the queue lets anybody in; HoldAndDrain also takes back what it gave."""
    cluster.kubectl(
        "patch", "localqueue", "yanmo", "--type=merge", f'--patch={{"spec": {{"stopPolicy": "{policy}"}}}}'
    )


def last_figures(said: str) -> list[str]:
    """Losses of the last step and of the validation after it."""
    step = re.findall(r"step \d+ of \d+ \(100 %\): (loss .* gradient norm [0-9.]+)", said)
    return [step[-1], *re.findall(r"bits per character: .*", said)[-1:]]


def test_a_job_trains_on_two_nodes_and_the_next_finds_its_model(cluster: RealCluster, jobs: Jobs) -> None:
    if not cluster.serves("trainer.kubeflow.org"):
        pytest.skip("needs a cluster with Kubeflow Trainer")
    job = jobs.start("launch", "first")
    assert jobs.ended(job) == "Complete", jobs.log(job)
    said = jobs.log(job)
    assert "made TrainJob" in said and "all 2 nodes run" in said and "committed launch/" in said, said
    kinds = "trainjobs,jobs,pods,services"
    cluster.wait(lambda: not left(cluster, named(said), kinds), "the TrainJob and its pods to go")
    again = jobs.start("launch", "again", "launch.nodes=4")
    assert jobs.ended(again) == "Complete" and "is committed already; nothing to do" in jobs.log(again)


def test_an_indexed_job_trains_to_its_end_and_leaves_nothing(cluster: RealCluster, jobs: Jobs) -> None:
    job = jobs.start("launch", "indexed", f"launch.by=job train.seed={jobs.seed + 2}")
    assert jobs.ended(job) == "Complete", jobs.log(job)
    said = jobs.log(job)
    assert "made Job" in said and "all 2 nodes run" in said and "committed launch/" in said, said
    kinds = "jobs,pods,services"
    cluster.wait(lambda: not left(cluster, named(said), kinds), "the Job, its pods and its Service to go")


def test_two_launches_at_once_make_one_training(cluster: RealCluster, jobs: Jobs) -> None:
    both = [jobs.start("launch", name, f"train.seed={jobs.seed + 7}") for name in ("one", "other")]
    assert [jobs.ended(job) for job in both] == ["Complete", "Complete"], [*map(jobs.log, both)]
    said = [jobs.log(job) for job in both]
    assert sum("made TrainJob" in text or "made Job" in text for text in said) == 1, said
    assert len({re.findall(r"launch/[0-9a-f]{12}", text)[-1] for text in said}) == 1, said


@pytest.mark.fault
def test_an_eviction_in_a_checkpoint_loses_nothing(cluster: RealCluster, jobs: Jobs) -> None:
    if not cluster.serves("kueue.x-k8s.io"):
        pytest.skip("needs a cluster with Kueue")
    options = f"train.steps=150 train.seed={jobs.seed + 8}"
    job = jobs.start("launch", "evicted", options)
    cluster.wait(lambda: "all 2 nodes run" in jobs.log(job), "the nodes to run")
    name = named(jobs.log(job))
    (node_0,) = [pod for pod in left(cluster, name, "pods") if re.search(r"-0-[a-z0-9]{5}$", pod)]

    def saves() -> bool:
        said = cluster.kubectl("logs", node_0)
        return said.count("saving step") > max(3, said.count("saved step-"))

    cluster.wait(saves, "a checkpoint that is being written", every=0.2)
    hold(cluster, "HoldAndDrain")
    try:
        cluster.wait(lambda: "its room is taken back" in jobs.log(job), "the launch to say so")
        cluster.wait(lambda: not left(cluster, name, "pods"), "the pods to go")
        assert jobs.state(job) == "", jobs.log(job)
    finally:
        hold(cluster, "None")
    assert jobs.ended(job) == "Complete", jobs.log(job)
    said = jobs.log(job)
    assert re.search(r"resuming at step [1-9]\d* of 150", said), said
    undisturbed = jobs.start("launch", "undisturbed", f"{options} launch.force=true")
    assert jobs.ended(undisturbed) == "Complete", jobs.log(undisturbed)
    assert last_figures(said) == last_figures(jobs.log(undisturbed))


def test_a_run_on_two_nodes_ends_with_a_champion_and_the_next_finds_it(
    cluster: RealCluster, launching: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """From the form that KFP's UI shows: the fields that `training_nodes` and its neighbours are."""
    path = tmp_path_factory.mktemp("compiled") / "language_model_on_nodes.yaml"
    compile_pipeline(load_pipeline("language_model_on_nodes"), path, cluster.image_prefix)
    form = small_form(training_nodes=2, training_pod_cpu="600m", training_pod_memory="1700Mi")
    form["options"] += f" {TINY}"
    form |= {"training_queue": "yanmo"} if "launch.queue" in launching else {}
    run_id = cluster.start(path, form, "on nodes")
    assert cluster.ended(run_id) == "SUCCEEDED", cluster.states(run_id)
    said = cluster.log(run_id, "launch")
    assert "all 2 nodes run" in said and "committed launch/" in said, said
    assert "Promoted" in cluster.log(run_id, "promote")
    again = cluster.start(path, form, "on nodes again")
    assert cluster.ended(again) == "SUCCEEDED", cluster.states(again)
    assert "is committed already; nothing to do" in cluster.log(again, "launch")
