"""The six templates: their command lines, sizes, and what ends a Job."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rendered import OVERLAYS, PodOf, named, pods

from yanmo.common.errors import ExitCode
from yanmo.options.command_line import load, load_command
from yanmo.options.shared import StageOptions
from yanmo.tools.store.command import TOOL
from yanmo_pipelines.resources import COLUMNS, GPU, METRICS_PORT, SCRATCH, SECRETS, labels_of, row_of
from yanmo_pipelines.stages import LANGUAGE_MODEL, RESOLVE

ALL = ["base", *OVERLAYS]
STAGES = [stage for stage in LANGUAGE_MODEL if stage is not RESOLVE]
COLUMN_OF = {"small": "small", "gpu": "gpu", "aws": "gpu"}
"""Overlay -> its column of the table of resources; the others have the standard one."""
STORE = {"yanmo-settings": "s3://bucket/store"}


def jobs_of(overlay: str) -> dict[str, PodOf]:
    """Name of a CronJob -> its pod."""
    return {
        name: pod
        for pod in pods(overlay)
        for kind, _, name in [pod.owner.partition("/")]
        if kind == "CronJob"
    }


def command_line(overlay: str, pod: PodOf, **given: str) -> list[str]:
    """The arguments as the kubelet makes them, with `given` set by `kubectl set env`."""
    values: dict[str, str] = {}
    for source in pod.container["envFrom"]:
        values |= named(overlay, "ConfigMap")[source["configMapRef"]["name"]]["data"]
    for variable in pod.container.get("env", []):
        values[variable["name"]] = variable.get("value", "0c3e-of-the-job")
    values |= given

    def expanded(text: str) -> str:
        return re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], found[0]), text)

    return [expanded(each) for each in pod.container["args"]]


@pytest.mark.parametrize("overlay", ALL)
def test_there_is_a_suspended_template_for_each_stage_and_nothing_starts_it(overlay: str) -> None:
    crons = named(overlay, "CronJob")
    assert {f"stage-{stage.name}" for stage in STAGES} | {"store-gc", "store-verify"} == crons.keys()
    for stage in STAGES:
        cron = crons[f"stage-{stage.name}"]
        assert cron["spec"]["suspend"] and cron["spec"]["schedule"] == "0 0 31 2 *"
        labels = labels_of(stage.name)
        template = cron["spec"]["jobTemplate"]
        pod_labels = template["spec"]["template"]["metadata"]["labels"]
        assert cron["metadata"]["labels"] == template["metadata"]["labels"] == labels
        assert labels.items() <= pod_labels.items()


@pytest.mark.parametrize("overlay", ALL)
@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_a_stage_reads_its_command_line(overlay: str, stage: Any) -> None:
    pod = jobs_of(overlay)[f"stage-{stage.name}"]
    verb, *flags = command_line(overlay, pod)
    assert verb == stage.name
    options: StageOptions = load(stage.config, flags, f"yanmo {verb}")
    assert (options.store, options.inputs, options.run_id) == ("", "latest", "0c3e-of-the-job")
    assert options.metrics_port == METRICS_PORT == pod.container["ports"][0]["containerPort"]
    assert getattr(options, "sources", "bundled") == "bundled", "as on the run form"


@pytest.mark.parametrize("overlay", ALL)
def test_an_override_wins_over_the_settings_and_leaves_the_others(overlay: str) -> None:
    pod = jobs_of(overlay)["stage-curate"]
    given = {"YANMO_OPTIONS": "curate.split_by=source train.steps=20", "YANMO_INPUTS": "run:4f1c"}
    _, *flags = command_line(overlay, pod, **given)
    options: Any = load(STAGES[0].config, flags, "yanmo curate")
    assert (options.sources, options.split_by, options.inputs) == ("bundled", "source", "run:4f1c")
    _, *flags = command_line(overlay, jobs_of(overlay)["stage-train"], **given)
    trained: Any = load(STAGES[3].config, flags, "yanmo train")
    assert trained.steps == 20


@pytest.mark.parametrize("overlay", ALL)
def test_care_of_the_store_reads_its_command_line(overlay: str) -> None:
    commands = {name: each.options for name, each in TOOL.subcommands.items()}
    for name in ("store-gc", "store-verify"):
        tool, *words = command_line(overlay, jobs_of(overlay)[name])
        assert tool == "store"
        found, options = load_command(commands, words, "yanmo store", "")
        assert f"store-{found}" == name and options.store == ""
        if found == "gc":
            values: Any = options
            assert values.delete and values.keep_runs == 30 and str(values.older_than) == "7d"


@pytest.mark.parametrize("overlay", ALL)
def test_what_no_retry_mends_ends_a_job_and_what_goes_on_does_not_count(overlay: str) -> None:
    for name, pod in jobs_of(overlay).items():
        job = pod.job
        fail, disrupted, again = job["podFailurePolicy"]["rules"]
        assert (fail["action"], disrupted["action"], again["action"]) == ("FailJob", "Ignore", "Ignore")
        fatal = [ExitCode.USAGE, ExitCode.DATA, ExitCode.ENVIRONMENT]
        assert fail["onExitCodes"] == {"operator": "In", "values": fatal}
        assert disrupted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
        assert again["onExitCodes"] == {"operator": "In", "values": [ExitCode.RETRY, 128 + 15]}
        assert job["podReplacementPolicy"] == "Failed" and pod.spec["restartPolicy"] == "Never"
        assert (
            job["activeDeadlineSeconds"] >= 86400 and job["ttlSecondsAfterFinished"] and job["backoffLimit"]
        )
        assert pod.spec["terminationGracePeriodSeconds"] >= 180, name


@pytest.mark.parametrize("overlay", ALL)
def test_a_pod_has_its_row_of_the_one_table(overlay: str) -> None:
    column = COLUMN_OF.get(overlay, "standard")
    assert column in COLUMNS
    for name, pod in jobs_of(overlay).items():
        mounts = {mount["mountPath"]: mount["name"] for mount in pod.container["volumeMounts"]}
        assert {*SECRETS.values(), SCRATCH, "/tmp"} <= mounts.keys()
        volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
        secrets = {
            v["secret"]["secretName"]: mounts_of(mounts, v["name"]) for v in volumes.values() if "secret" in v
        }
        assert secrets == SECRETS and all(v["secret"]["optional"] for v in volumes.values() if "secret" in v)
        if not pod.stage:
            continue
        row = row_of(column, pod.stage)
        wanted = {"cpu": row.cpu, "memory": row.memory}
        wanted |= {GPU: row.gpus} if row.gpus not in ("", "0") else {}
        assert pod.container["resources"]["limits"] == wanted, name
        shared = volumes.get(mounts.get("/dev/shm", ""), {}).get("emptyDir", {})
        assert shared.get("sizeLimit", "") == row.shared_memory, name
        tainted = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
        assert pod.spec.get("tolerations", []) == ([tainted] if GPU in wanted else [])


def mounts_of(mounts: dict[str, str], volume: str) -> str:
    return next(path for path, name in mounts.items() if name == volume)
