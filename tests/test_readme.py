"""Every block of code in README.md is run, or is what such a block prints, or lists files that it makes.

The blocks for a laptop go through a shell in their order, in a folder of their own; those for a cluster meet
a server that answers as one, and a real cluster in tests/cluster/test_page.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import zstandard
from manifests.rendered import kubectl, named
from pipelines.cluster.schedules import recurring_kfp
from servers.replayed import kubeconfig, one, serving
from user_pages import ROOT

COMMAND = re.compile(r"(make|yanmo|\S*/yanmo|kubectl|export|echo|\.) ")
CLUSTER = "In Kubeflow"
NUMBER = re.compile(r"\d+\.\d+")
MOST_BITS_APART = 0.05


def blocks(section: str = "") -> list[str]:
    """The blocks of code of README.md, or of one of its sections."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.split(r"^## ", text.partition(f"## {section}\n")[2], flags=re.M)[0] if section else text
    found = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", text, re.M)
    return [re.sub(r"^    ", "", block, flags=re.M) for block in found]


def commands(section: str = "") -> list[str]:
    return [block for block in blocks(section) if COMMAND.match(block)]


def shell(script: str, folder: Path, variables: Mapping[str, str]) -> str:
    """What a script prints, whose every command ends well."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def is_far(line: str, printed: list[str]) -> bool:
    """Whether no printed line has the same words and nearly the same figures; a poem may be any."""
    figures = [float(figure) for figure in NUMBER.findall(line)]
    alike = (said for said in printed if NUMBER.sub("#", said).split() == NUMBER.sub("#", line).split())
    near = (
        all(
            abs(a - b) < MOST_BITS_APART
            for a, b in zip(map(float, NUMBER.findall(said)), figures, strict=True)
        )
        for said in alike
    )
    return bool(figures) and not any(near)


def test_every_block_is_run_or_is_an_output_or_a_list_of_files() -> None:
    others = [block.split()[0] for block in blocks() if not COMMAND.match(block)]
    assert others == ["genre", "春眠不觉晓风轻，春亦莫向黄昏夜。", "runs/demo/report.html"]
    assert len(commands()) == 6 and len(commands(CLUSTER)) == 3


@pytest.mark.road
@pytest.mark.process
def test_the_commands_for_a_laptop_print_what_readme_shows(tmp_path: Path) -> None:
    for path in ("Makefile", "components", "pipelines", "constraints", "corpus", "install", "pyproject.toml"):
        (tmp_path / path).symlink_to(ROOT / path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    with zstandard.open(ROOT / "corpus/small.jsonl.zst", "rt", encoding="utf-8") as lines:
        poems = [text["text"] for text in map(json.loads, lines) if text["genre"] == "诗"][:3000]
    (tmp_path / "my poems.txt").write_text("\n\n".join(poems), encoding="utf-8")
    refused = dict.fromkeys(
        ("http_proxy", "https_proxy"), "http://127.0.0.1:9"
    )  # installed, no network is needed
    laptop = [block for block in commands() if block not in commands(CLUSTER)]
    printed = shell("\n".join(laptop), tmp_path, refused).splitlines()
    shown = [line for block in blocks("Try it") if not COMMAND.match(block) for line in block.splitlines()]
    missed = [line for line in shown if line not in (*printed, "...")]
    if any(NUMBER.search(line) for line in missed):  # another kind of processor: near figures, other poems
        missed = [line for line in missed if is_far(line, printed)]
    assert missed == []
    for line in blocks("Where things lie")[0].splitlines():
        place = re.sub(r"<\w+>|\.\.\.", "*", line.split()[0])
        assert list(tmp_path.glob(place)), place


def test_the_schedule_is_made_from_the_file(tmp_path: Path) -> None:
    kfp = recurring_kfp.RecurringKfp()
    with recurring_kfp.serving(kfp) as address:
        printed = shell(commands(CLUSTER)[1], tmp_path, {"KFP_ENDPOINT": address, "KUBECONFIG": "none"})
    (run,) = kfp.runs.values()
    assert printed.startswith("nightly: made") and "21:00 +0800" in printed
    assert run["status"] == "ENABLED" and run["trigger"]["cron_schedule"]["cron"] == "0 0 13 * * *"
    assert "train.night=21:00-08:00" in run["runtime_config"]["parameters"]["options"]


def test_a_stage_runs_again_by_kubectl_alone(tmp_path: Path) -> None:
    """Its template is that of the overlay; the server says at once that the Job's pod has ended."""
    of_batch, of_core = "/apis/batch/v1", "/api/v1"
    jobs, pods = f"{of_batch}/namespaces/kubeflow/jobs", f"{of_core}/namespaces/kubeflow/pods"
    template = named("small", "CronJob")["stage-train"]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "rerun-1", "namespace": "kubeflow"},
        "spec": {"selector": {"matchLabels": {"job-name": "rerun-1"}}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "rerun-1-x", "namespace": "kubeflow"},
        "spec": {"containers": [{"name": "stage"}]},
        "status": {"phase": "Succeeded"},
    }
    pods_of_job = {"apiVersion": "v1", "kind": "PodList"}
    version = {"groupVersion": "batch/v1", "version": "v1"}
    group = {"name": "batch", "versions": [version], "preferredVersion": version}
    discovered = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "groups": [group]},
        of_batch: resources("batch/v1", jobs="Job", cronjobs="CronJob"),
        of_core: resources("v1", pods="Pod"),
    }
    answers = [
        *(one(f"GET {path}?timeout=32s", 200, found) for path, found in discovered.items()),
        one(f"GET {of_batch}/namespaces/kubeflow/cronjobs/stage-train", 200, template),
        one(f"POST {jobs}?fieldManager=kubectl-create&fieldValidation=Strict", 201, job),
        one(f"GET {jobs}/rerun-1", 200, job),
        one(f"GET {pods}?labelSelector=job-name%3Drerun-1", 200, {**pods_of_job, "items": [pod]}),
        one(f"GET {pods}/rerun-1-x", 200, pod),
        one(f"GET {pods}/rerun-1-x/log?container=stage&follow=true", 200, "step 1 of 20\n", "text/plain"),
    ]  # fmt: skip
    (tmp_path / "kubectl").symlink_to(kubectl())
    with serving(answers) as (address, server):
        where = {"KUBECONFIG": kubeconfig(tmp_path, address), "HOME": str(tmp_path)}
        printed = shell(commands(CLUSTER)[2], tmp_path, where)
    assert printed.splitlines() == ["job.batch/rerun-1 created", "step 1 of 20"]
    sent = next(
        body for asked, body in zip(server.asked, server.bodies, strict=True) if asked.startswith("POST")
    )
    assert all(
        word in sent for word in ("rerun-1", "yanmo-train", "YANMO_OPTIONS")
    )  # of protobuf, which kubectl sends


def resources(version: str, **kinds: str) -> dict[str, Any]:
    """What an API of Kubernetes says that it has."""
    each = [{"name": n, "kind": kind, "namespaced": True, "verbs": ["get"]} for n, kind in kinds.items()]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": each}
