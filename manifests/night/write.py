"""Writes components/night/cron-job.yaml: a compiled pipeline as one pod, task by task.

    python manifests/night/write.py [--column small]

Each task is a container with the arguments that KFP would give it; what KFP's launcher does between them,
files of an emptyDir do. So a night without KFP has the same stages, keys and page. A test compares the files
with what this writes.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from yanmo_pipelines import resources

HERE = Path(__file__).resolve().parent
BASE, COMPILED = HERE.parent / "base", HERE.parents[1] / "pipelines/compiled"
FILE = HERE.parent / "components/night/cron-job.yaml"
FILES = "/run/yanmo"
"""Where a task leaves what the next ones read."""
_INPUT = re.compile(r"\{\{\$\.inputs\.(artifacts|parameters)\['([^']+)'\](?:\.path)?\}\}")
_GIVEN = {"store": "", "run_id": "$(YANMO_RUN_ID)", "given_options": "$(YANMO_OPTIONS)"}
_HEAD = """\
# One night in one pod, for clusters without KFP: written by manifests/night/write.py, as the pipeline of
# pipelines/compiled/language_model.yaml is. Overlays say when (schedule, timeZone) and with which options.
#
#   apply:  kubectl apply -k manifests/overlays/...
#   now:    kubectl -n NAMESPACE create job night-1 --from=cronjob/yanmo-night
#   check:  kubectl -n NAMESPACE get cronjob yanmo-night
#   logs:   kubectl -n NAMESPACE logs job/night-1 --all-containers
#   clean:  kubectl -n NAMESPACE delete cronjob yanmo-night
"""


def cron_job(column: resources.Column) -> dict[str, Any]:
    """The CronJob, with pods of a column of the table of resources."""
    found, pods, training = (
        _read(BASE / name) for name in ("every-pod.yaml", "stage-pods.yaml", "training-pods.yaml")
    )
    labels = {**_labels(), "app.kubernetes.io/component": "night"}
    template = found["spec"]["jobTemplate"]
    pod = template["spec"]["template"]["spec"]
    container = _merged(_container_of(found), _container_of(pods))
    container["env"] = [
        one for one in container["env"] if one["name"] not in ("YANMO_INPUTS", "YANMO_OPTIONS")
    ]
    memory = _container_of(training)["volumeMounts"]
    ports = container.pop("ports")  # Kubernetes warns of a port that two containers declare
    spec = next(yaml.safe_load_all((COMPILED / "language_model.yaml").read_text(encoding="utf-8")))
    *first, last = [_container(task, container, column, memory) for task in _tasks(spec)]
    pod["initContainers"], pod["containers"] = first, [{**last, "name": "stage", "ports": ports}]
    pod["volumes"] += [
        *training["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"],
        {"name": "handed-on", "emptyDir": {"sizeLimit": "64Mi"}},
    ]
    template["metadata"] = {"labels": labels}
    template["spec"]["template"]["metadata"]["labels"] |= labels
    found["metadata"] = {"name": "yanmo-night", "labels": labels}
    found["spec"] |= {"schedule": "0 21 * * *", "suspend": False, "startingDeadlineSeconds": 3600}
    return found


def _read(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def _labels() -> dict[str, str]:
    return {"app.kubernetes.io/name": "yanmo", "app.kubernetes.io/part-of": "yanmo"}


def _container_of(cron_job: dict[str, Any]) -> dict[str, Any]:
    return dict(cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0])


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    lists = {
        name: [*one[name], *other[name]] for name in one if isinstance(one[name], list) and name in other
    }
    return {**one, **other, **lists}


def _tasks(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The tasks of a compiled pipeline, each after those that it waits for."""
    tasks = spec["root"]["dag"]["tasks"]
    order: list[str] = []
    while left := [name for name in tasks if name not in order]:
        free = [name for name in left if set(tasks[name].get("dependentTasks", [])) <= set(order)]
        order += sorted(free)[:1]
    return [_task(name, tasks[name], spec) for name in order]


def _task(name: str, task: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    component = spec["components"][task["componentRef"]["name"]]
    container = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
    inputs = task.get("inputs", {})
    files = {
        n: "{producerTask}/{outputArtifactKey}".format_map(one["taskOutputArtifact"])
        for n, one in inputs.get("artifacts", {}).items()
    }
    verb = container["command"][-1].removeprefix("yanmo.")
    args = [verb, *(a for a in map(str, container["args"]) if not a.startswith("--form="))]
    outputs = component.get("outputDefinitions", {})
    placed = [_placed(arg, files, _executor_input(name, outputs)) for arg in args]
    if verb == "resolve":
        placed = [a for a in placed if not a.startswith("--defaults=")]
        placed += ["--defaults=$(YANMO_DEFAULTS)", "--channel=$(YANMO_CHANNEL)"]
    return {"name": name, "stage": verb, "image": container["image"], "args": placed}


def _placed(arg: str, files: dict[str, str], executor_input: str) -> str:
    def value(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        if kind == "artifacts":
            return f"{FILES}/{files[name]}"
        return _GIVEN.get(name, "$(YANMO_CHANNEL)" if name == "channel" else "")

    return _INPUT.sub(value, arg.replace("{{$}}", executor_input))


def _executor_input(task: str, outputs: dict[str, Any]) -> str:
    """What KFP tells a stage of its outputs (yanmo/stage/kfp_outputs.py)."""
    artifacts = {
        name: {"artifacts": [{"uri": f"{FILES}/{task}/{name}", "type": one["artifactType"]}]}
        for name, one in outputs.get("artifacts", {}).items()
    }
    parameters = {name: {"outputFile": f"{FILES}/{task}/{name}"} for name in outputs.get("parameters", {})}
    said = {
        "artifacts": artifacts,
        "parameters": parameters,
        "outputFile": f"{FILES}/{task}/executor_output.json",
    }
    return json.dumps({"outputs": said}, separators=(",", ":"), sort_keys=True)


def _container(
    task: dict[str, Any], common: dict[str, Any], column: resources.Column, memory: list[Any]
) -> dict[str, Any]:
    found = {**copy.deepcopy(common), "name": task["name"], "image": task["image"], "args": task["args"]}
    row = resources.row_of(column, task["stage"])
    limits = {"cpu": row.cpu, "memory": row.memory}
    found["resources"] = {"requests": limits, "limits": dict(limits)}
    found["volumeMounts"] += [{"name": "handed-on", "mountPath": FILES}]
    if task["stage"] in ("train", "evaluate"):
        found["volumeMounts"] += memory
    if task["stage"] == "resolve":
        # A second night ends without a training; one that began late pauses in the morning.
        options = "train.when_busy=end train.night=21:00-08:00 train.timezone=UTC"
        found["env"] = [{"name": "YANMO_OPTIONS", "value": options}, *found["env"]]
    return found


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def text(column: resources.Column) -> str:
    """The file with the CronJob."""
    return _HEAD + yaml.dump(cron_job(column), Dumper=_Plain, sort_keys=False, width=10**6)


if __name__ == "__main__":
    if "--column" in sys.argv:
        sys.stdout.write(text(sys.argv[sys.argv.index("--column") + 1]))
    else:
        FILE.write_text(text("standard"), encoding="utf-8")
