"""What Kubeflow Pipelines adds to the stages of a run: seconds and pods of each task.

    YANMO_NAMESPACE=kubeflow python benchmarks/kfp_overhead.py RUN_ID
    KFP_ENDPOINT=... YANMO_NAMESPACE=kubeflow python benchmarks/kfp_overhead.py --floor IMAGE

The second starts a run of as many tasks, one after the other, which do nothing in a container of this image.

The first reads the run's pods by kubectl, so the run must not be older than they are kept.
`stage` is what the stage's process took: its first to its last line of log. `task` is from the start of the
driver's pod, which prepares the task, to the end of the task's own; what is left goes to scheduling, images,
launcher, uploads, and the times at which Argo looks at the run.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
from datetime import datetime
from typing import Any

import kfp
from kfp import compiler, dsl

from yanmo.common.logs import read_line

NODE = "workflows.argoproj.io/node-name"


def kubectl(*words: str) -> str:
    namespace = os.environ.get("YANMO_NAMESPACE", "kubeflow")
    command = ["kubectl", f"--namespace={namespace}", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def span(pod: dict[str, Any]) -> tuple[float, float]:
    """From the creation of the pod to the end of its last container."""
    ends = [c["state"]["terminated"]["finishedAt"] for c in pod["status"]["containerStatuses"]]
    return seconds(pod["metadata"]["creationTimestamp"]), max(map(seconds, ends))


def stage_seconds(pod: dict[str, Any]) -> float:
    log = kubectl("logs", pod["metadata"]["name"], "--container=main")
    lines = [line for line in map(read_line, log.splitlines()) if line]
    clock = [line.time.rpartition("T")[2][:8].split(":") for line in lines]  # of a plain line, all of it
    times = [int(h) * 3600 + int(m) * 60 + int(s) for h, m, s in clock]
    return float(times[-1] - times[0]) if times else 0.0


def run_of_nothing(image: str, tasks: int = 7) -> float:
    """Run tasks that do nothing, retried as Yanmo's are; return how long the run took, seconds."""

    @dsl.container_component  # type: ignore[untyped-decorator]
    def nothing(before: str, out: dsl.OutputPath(str)) -> dsl.ContainerSpec:  # type: ignore[valid-type]
        write = 'mkdir -p "$(dirname "$0")" && echo done > "$0"'
        return dsl.ContainerSpec(image=image, command=["sh", "-c", write, out])

    @dsl.pipeline(name="floor")  # type: ignore[untyped-decorator]
    def floor() -> None:
        before: Any = ""
        for _ in range(tasks):
            task = nothing(before=before).set_caching_options(False).set_retry(4, "10s", 2.0)
            before = task.outputs["out"]

    client = kfp.Client(os.environ["KFP_ENDPOINT"], namespace=os.environ.get("YANMO_NAMESPACE", "kubeflow"))
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        compiler.Compiler().compile(floor, file.name)
        run_id = client.create_run_from_pipeline_package(file.name, enable_caching=False).run_id
    run = client.wait_for_run_completion(run_id, timeout=3600, sleep_duration=1)
    return float((run.finished_at - run.created_at).total_seconds())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_id", nargs="?")
    parser.add_argument("--floor", metavar="IMAGE")
    options = parser.parse_args()
    if options.floor:
        print(f"7 tasks that do nothing: {run_of_nothing(options.floor):.0f} s")
        return
    run_id = options.run_id
    pods = json.loads(kubectl("get", "pods", "-o=json", f"--selector=pipeline/runid={run_id}"))["items"]
    tasks: dict[str, dict[str, Any]] = {}
    for pod in sorted(pods, key=lambda pod: span(pod)[0]):
        node = pod["metadata"]["annotations"][NODE]
        found = re.search(r"\.([a-z-]+?)(-driver)?(?:\(\d+\)(?:\.executor.*)?)?$", node)
        name = found[1] if found else "root"
        tasks.setdefault(name, {"pods": []})["pods"].append(pod)
    print(f"{'task':<18}{'pods':>5}{'task s':>8}{'stage s':>9}{'rest s':>8}")
    begin, end = min(span(p)[0] for p in pods), max(span(p)[1] for p in pods)
    total = 0.0
    for name, task in tasks.items():
        whole = max(span(p)[1] for p in task["pods"]) - min(span(p)[0] for p in task["pods"])
        own = sum(stage_seconds(p) for p in task["pods"] if "executor" in p["metadata"]["annotations"][NODE])
        total += own
        print(f"{name:<18}{len(task['pods']):>5}{whole:>8.0f}{own:>9.0f}{whole - own:>8.0f}")
    print(f"{'all':<18}{len(pods):>5}{end - begin:>8.0f}{total:>9.0f}{end - begin - total:>8.0f}")


if __name__ == "__main__":
    main()
