"""`yanmo launch` and `yanmo launch reap`, against a cluster whose answers are written down."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from servers.replayed import kubeconfig, one, serving

from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.opening import open_store
from yanmo.store.output import Output, Pause, PausedOutput
from yanmo.store.pointers import move_pointer, read_pointer
from yanmo_pipelines.cluster.launch import command

GROUP = "/apis/trainer.kubeflow.org"
SPACE = f"{GROUP}/v1alpha1/namespaces/kubeflow"
JOBS = "/apis/batch/v1/namespaces/kubeflow"
TRAINER = one(f"GET {GROUP}", 200, {"versions": [{"version": "v1alpha1"}]})
OUR_RUNTIME = Path(__file__).parents[4] / "manifests/components/launch/runtime.yaml"
RUNTIME = one(
    f"GET {SPACE}/trainingruntimes/yanmo-train", 200, yaml.safe_load(OUR_RUNTIME.read_text(encoding="utf-8"))
)
INSTALLED = [TRAINER, RUNTIME]
Ask = Callable[..., Any]


def committed(store: Any, stage: str) -> Output:
    def build(attempt: Attempt) -> Result:
        attempt.write("text.txt", stage)
        return Result(counts={"tokens": 1})

    found = commit_once(store, Recipe(stage=stage, revision=1, semantic={"a": 1}, inputs={}), build)
    assert found
    return found


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A store whose channel `nodes` has a token cache."""
    uri = f"file://{tmp_path}/store"
    store = open_store(uri)
    move_pointer(store, "nodes", "tokenize", committed(store, "tokenize").reference)
    return uri


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, capfd: Any) -> Ask:
    """Exit code, stdout, stderr and server of a launch in a cluster that answers so."""
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "scratch"))

    def launch(recorded: list[dict[str, Any]], *words: str) -> Any:
        with serving(recorded) as (address, server):
            monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, address))
            own = ["--store", place, "--channel=nodes", "--look-seconds=0.001", "--metrics-port=-1"]
            code = command.main(list(words) if words[:1] == ("reap",) else [*own, *words])
        said = capfd.readouterr()
        return code, said.out, said.err, server

    return launch


@pytest.fixture
def name(ask: Ask) -> str:
    """Of the TrainJob of a launch without options."""
    code, out, _, server = ask(INSTALLED, "--dry-run")
    assert code == 0 and not [one for one in server.asked if not one.startswith("GET ")]
    return str(yaml.safe_load(out)["metadata"]["name"])


def ours(name: str, state: str = "", **meta: Any) -> dict[str, Any]:
    conditions = [{"type": state, "status": "True", "message": "x"}] if state else []
    labels = {"yanmo.dev/launch": name.removeprefix("yanmo-train-")}
    spec = {"trainer": {"numNodes": 2}}
    found = {"name": name, "uid": "u-1", "labels": labels, **meta}
    return {"metadata": found, "spec": spec, "status": {"conditions": conditions}}


def ended_well(name: str, message: str) -> list[dict[str, Any]]:
    """What the cluster answers of a training whose node 0 left this word."""
    selector = f"jobset.sigs.k8s.io%2Fjobset-name%3D{name}"
    end = {"exitCode": 0, "message": message}
    pod = {
        "metadata": {"name": f"{name}-0", "labels": {"batch.kubernetes.io/job-completion-index": "0"}},
        "status": {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": end}}]},
    }
    return [
        one(f"GET {SPACE}/trainjobs/{name}", 200, ours(name, "Complete")),
        one(
            f"GET /api/v1/namespaces/kubeflow/pods?limit=500&labelSelector={selector}", 200, {"items": [pod]}
        ),
        one(f"GET /api/v1/namespaces/kubeflow/pods/{name}-0/log?timestamps=true", 200, "", "text/plain"),
        one(f"DELETE {SPACE}/trainjobs/{name}?propagationPolicy=Background", 200, {}),
    ]


def made(name: str) -> dict[str, Any]:
    return one(f"POST {SPACE}/trainjobs", 201, ours(name))


TAKEN = one(f"POST {SPACE}/trainjobs", 409, {"message": "already exists"})


def test_a_launch_hands_on_the_model_and_is_found_without_asking_the_cluster(
    ask: Ask, name: str, place: str
) -> None:
    model = committed(open_store(place), "train")
    message = model.reference.to_json()
    told = [*INSTALLED, made(name), *ended_well(name, message)]
    code, _, err, server = ask(told, "--nodes=4", "--gpus=2", "--run-id=r-1", "--queue=q", "--preemptible")
    assert code == 0, err
    (sent,) = server.sent(f"POST {SPACE}/trainjobs")
    assert sent["metadata"]["name"] == name, "pods, queue and run are not in the key"
    assert sent["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert sent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "yanmo-night"
    trainer = sent["spec"]["trainer"]
    assert trainer["numNodes"] == 4 and trainer["numProcPerNode"] == 2
    assert trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"] == "2"
    assert trainer["args"][0] == "train" and f"--store={place}" in trainer["args"]
    assert any(word.startswith('--token-cache={"schema"') for word in trainer["args"])
    assert any(asked.startswith(f"DELETE {SPACE}/trainjobs/{name}") for asked in server.asked)
    assert read_pointer(open_store(place), "nodes", "train") == model.reference
    code, _, err, server = ask([], "--nodes=8")
    assert code == 0 and "is committed already; nothing to do" in err and not server.asked


def test_options_and_inputs_of_the_training_make_another_launch_and_its_pods_none(
    ask: Ask, name: str
) -> None:
    def named(*words: str) -> str:
        code, out, err, _ = ask(INSTALLED, "--dry-run", *words)
        assert code == 0, err
        return str(yaml.safe_load(out)["metadata"]["name"])

    same = named("--nodes=4", "--set=ranks=2", "--set=checkpoint_steps=7", "--training=evaluate.samples=4")
    assert same == name and named("--training=train.seed=2") == named("--set=seed=2") != name


@pytest.mark.parametrize("way", ["flag", "line", "file"])
def test_a_dry_run_makes_nothing_however_it_is_asked_for(
    ask: Ask, name: str, way: str, tmp_path: Path
) -> None:
    (tmp_path / "launch.yaml").write_text("dry_run: true\n", encoding="utf-8")
    words = {
        "flag": "--dry-run=true",
        "line": "--options=launch.dry_run=true",
        "file": f"--config={tmp_path}/launch.yaml",
    }
    code, out, err, server = ask(INSTALLED, words[way])
    assert code == 0, err
    assert yaml.safe_load(out)["metadata"]["name"] == name
    assert all(asked.startswith("GET ") for asked in server.asked)


def test_a_launch_attaches_to_a_training_that_is_there(ask: Ask, name: str, place: str) -> None:
    model = committed(open_store(place), "train")
    told = [*INSTALLED, TAKEN, *ended_well(name, model.reference.to_json())]
    told.insert(3, one(f"GET {SPACE}/trainjobs/{name}", 200, ours(name)))
    code, _, err, server = ask(told)
    assert code == 0 and "is there already, with 2 nodes: attached to it" in err
    assert len(server.sent(f"POST {SPACE}/trainjobs")) == 1


def test_who_attaches_owns_it_too(ask: Ask, name: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KFP_POD_NAME", "launcher-1")
    first, second = owner("Workflow", "run-1"), owner("Workflow", "run-2")
    there = ours(name)
    there["metadata"]["ownerReferences"] = [first]
    pod = {"metadata": {"ownerReferences": [second | {"controller": True}]}}
    model = committed(open_store(place), "train")
    told = [*INSTALLED, TAKEN, *ended_well(name, model.reference.to_json())]
    told += [
        one("GET /api/v1/namespaces/kubeflow/pods/launcher-1", 200, pod),
        one(f"PATCH {SPACE}/trainjobs/{name}", 200, there),
    ]
    told.insert(3, one(f"GET {SPACE}/trainjobs/{name}", 200, there))
    code, _, err, server = ask(told)
    assert code == 0, err
    (changed,) = server.sent(f"PATCH {SPACE}/trainjobs/{name}")
    assert changed == {"metadata": {"ownerReferences": [first, second]}}


def test_one_that_failed_before_is_begun_again(ask: Ask, name: str, place: str) -> None:
    model = committed(open_store(place), "train")
    told = [*INSTALLED, TAKEN, made(name), *ended_well(name, model.reference.to_json())]
    told.insert(3, one(f"GET {SPACE}/trainjobs/{name}", 200, ours(name, "Failed")))
    code, _, err, server = ask(told)
    assert code == 0 and "of an earlier launch has ended; it is deleted" in err
    assert len(server.sent(f"POST {SPACE}/trainjobs")) == 2


def test_a_name_that_is_taken_by_something_else_is_left_alone(ask: Ask, name: str) -> None:
    foreign = one(f"GET {SPACE}/trainjobs/{name}", 200, ours(name, labels={"team": "b"}))
    code, _, err, server = ask([*INSTALLED, TAKEN, foreign])
    assert code == 78 and "is not ours: it lacks the label yanmo.dev/launch=" in err
    assert not any(asked.startswith(("DELETE", "PATCH")) for asked in server.asked)


def test_a_pause_stands_for_the_model_too(ask: Ask, name: str, tmp_path: Path) -> None:
    paused = PausedOutput.of("train", "ab" * 32, Pause(where="step 9 of 20", why="--night 21:00-08:00"))
    listed = {
        n: {"artifacts": [{"name": n, "uri": f"{tmp_path}/out/{n}", "type": {"schemaTitle": t}}]}
        for n, t in {"launched": "system.Artifact", "train": "system.Model"}.items()
    }
    status = {"status": {"outputFile": f"{tmp_path}/out/status"}}
    outputs = {"outputFile": f"{tmp_path}/out/file.json", "artifacts": listed, "parameters": status}
    told = [*INSTALLED, made(name), *ended_well(name, paused.to_json())]
    code, _, err, _ = ask(told, f"--executor-input={json.dumps({'outputs': outputs})}")
    assert code == 0, err
    assert (tmp_path / "out/status").read_text(encoding="utf-8") == "paused"
    for each in ("launched", "train"):
        body = PausedOutput.from_json((tmp_path / "out" / each).read_bytes())
        assert body and body.where == "step 9 of 20"


WITHOUT = {
    "another version of Trainer": (
        [one(f"GET {GROUP}", 200, {"versions": [{"version": "v1"}]})],
        (),
        "serves v1 here, and this Yanmo speaks v1alpha1 (Trainer 2.0 to 2.3); `--by job` does without it",
    ),
    "no TrainingRuntime": ([TRAINER], (), "there is no TrainingRuntime yanmo-train in namespace kubeflow"),
    "no Trainer where it has to be": ([], ("--by=trainjob",), "Kubeflow Trainer is not installed"),
    "neither Trainer nor our manifests": ([], (), "there is no CronJob stage-train in namespace kubeflow"),
}


@pytest.mark.parametrize("case", WITHOUT)
def test_what_the_cluster_lacks_is_said_with_what_to_do(ask: Ask, case: str) -> None:
    told, words, expected = WITHOUT[case]
    code, _, err, server = ask(told, *words)
    assert code == 78 and expected in err
    assert not any(asked.startswith("POST") for asked in server.asked)


WRONG = {
    "--preemptible": "--preemptible needs --queue",
    "--queue=A b": "--queue A b: expected a LocalQueue's name",
    "--set=layrs=2": "did you mean layers?",
    "--set=balance.by=author": "expected an option of train",
    "--set=nnodes=3": "--set nnodes: launch sets it itself",
    "--training=train.batch_rows=3": "does not divide among --ranks 1 on each of --nnodes 2",
    "--set=benchmark=true": "--benchmark measures one machine",
    "--store=runs/here": "a folder of this machine; expected s3://bucket/prefix",
    "--pointer=x": "--pointer and --take are no options of launch",
    "--gpus=-1": "expected a whole number of GPUs",
}


@pytest.mark.parametrize("word", WRONG)
def test_what_cannot_be_is_refused_before_the_cluster_is_asked(
    ask: Ask, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [word]
    if word.startswith("--store"):
        store = open_store("runs/here")
        move_pointer(store, "nodes", "tokenize", committed(store, "tokenize").reference)
    code, _, err, server = ask([], *given)
    assert code == 64 and WRONG[word] in err and not server.asked


def test_without_trainer_a_job_and_a_service_that_goes_with_it(ask: Ask, name: str, place: str) -> None:
    model = committed(open_store(place), "train")
    container = {"name": "stage", "image": "yanmo-train:0.2.0"}
    template = {"spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [container]}}}}}}
    done = [
        {
            **each,
            "request": each["request"]
            .replace(f"{SPACE}/trainjobs", f"{JOBS}/jobs")
            .replace("jobset.sigs.k8s.io%2Fjobset-name", "batch.kubernetes.io%2Fjob-name"),
        }
        for each in ended_well(name, model.reference.to_json())
    ]
    job = {**ours(name), "apiVersion": "batch/v1", "kind": "Job"}
    told = [
        one(f"GET {JOBS}/cronjobs/stage-train", 200, template),
        one(f"POST {JOBS}/jobs", 201, job),
        one("POST /api/v1/namespaces/kubeflow/services", 201, {}),
        *done,
    ]
    code, _, err, server = ask(told)
    assert code == 0, err
    (service,) = server.sent("POST /api/v1/namespaces/kubeflow/services")
    assert service["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u-1"}
    ]


def owner(kind: str, name: str) -> dict[str, Any]:
    version = "argoproj.io/v1alpha1" if kind == "Workflow" else "batch/v1"
    return {"apiVersion": version, "kind": kind, "name": name, "uid": name}


def test_what_nobody_waits_for_is_deleted_and_nothing_else(ask: Ask) -> None:
    flows = "GET /apis/argoproj.io/v1alpha1/namespaces/kubeflow/workflows"
    owners = {
        "cancelled": [owner("Workflow", "failed")],
        "of-a-job": [owner("Job", "over")],
        "gone": [owner("Workflow", "absent")],
        "goes-on": [owner("Workflow", "runs")],
        "of-two": [owner("Workflow", "failed"), owner("Workflow", "runs")],
        "of-a-shell": [],
    }
    items = [{"metadata": {"name": n, "ownerReferences": o}} for n, o in owners.items()]
    told = [
        one(f"GET {SPACE}/trainjobs?limit=500&labelSelector=yanmo.dev%2Flaunch", 200, {"items": items}),
        one(f"GET {JOBS}/jobs?limit=500&labelSelector=yanmo.dev%2Flaunch", 200, {"items": []}),
        one(f"{flows}/failed", 200, {"status": {"phase": "Failed"}}),
        one(f"{flows}/runs", 200, {"status": {"phase": "Running"}}),
        one(f"GET {JOBS}/jobs/over", 200, {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}),
        *(one(f"DELETE {SPACE}/trainjobs/{n}?propagationPolicy=Background", 200, {}) for n in owners),
    ]
    code, _, err, server = ask(told, "reap")
    assert code == 0, err
    gone = {each.split("/")[-1].split("?")[0] for each in server.asked if each.startswith("DELETE")}
    assert gone == {"cancelled", "of-a-job", "gone"}
