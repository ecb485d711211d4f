"""Nights without KFP and by Kueue: known field by field; the command lines are those of the pipeline."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendered import MANIFESTS

from yanmo.options.command_line import load
from yanmo.options.one_line import read_line
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo_pipelines.chat import OPTIONS
from yanmo_pipelines.cluster.schedules.command import COMMANDS
from yanmo_pipelines.stages import LANGUAGE_MODEL

validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
NIGHTS = [MANIFESTS / f"components/{name}/cron-job.yaml" for name in ("night", "night-chat")]
WINDOW = MANIFESTS / "components/night-window"


def written() -> Any:
    spec = importlib.util.spec_from_file_location("night_write", MANIFESTS / "night/write.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def pod_of(cron_job: dict[str, Any]) -> dict[str, Any]:
    return dict(cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"])


@pytest.mark.parametrize("night", NIGHTS, ids=lambda path: path.parent.name)
def test_the_nights_pod_is_the_compiled_pipeline(night: Path) -> None:
    expected = written().text("standard", night.parent.name)
    assert night.read_text(encoding="utf-8") == expected, "run manifests/night/write.py"


@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_every_object_is_known_field_by_field(version: str) -> None:
    found = [each for night in NIGHTS for each in documents(night)]
    found += [each for name in ("rights", "cron-jobs") for each in documents(WINDOW / f"{name}.yaml")]
    assert len(found) == 8
    for each in found:
        validate.validate(each, version, strict=True)


@pytest.mark.parametrize("night", NIGHTS, ids=lambda path: path.parent.name)
def test_each_stage_of_the_night_reads_its_command_line(night: Path) -> None:
    line = "curate.sources=bundled train.night=21:00-08:00 train.when_busy=end"
    pod = pod_of(documents(night)[0])
    stages = {stage.name: stage for stage in LANGUAGE_MODEL}
    seen = []
    made = {"none"}
    for container in (*pod["initContainers"], *pod["containers"]):
        verb, *flags = container["args"]
        placed = [flag.replace("--options=pinned", f"--options={line}") for flag in flags]
        placed = [re.sub("=pinned:.*", "=none", flag) for flag in placed]  # as its first task found nothing
        placed = [flag.replace("$(YANMO_CHANNEL)", "main").replace("$(YANMO_OPTIONS)", "") for flag in placed]
        placed = [flag.replace("$(YANMO_DEFAULTS)", "curate.sources=bundled") for flag in placed]
        options = load(stages[verb].config, placed, f"yanmo {verb}")
        if verb == "train":
            assert options.when_busy == "end" and options.night == "21:00-08:00"
        read = {flag.partition("=")[2] for flag in flags if "=/run/yanmo/" in flag}
        assert read <= made, "a file that no earlier stage leaves"
        outputs = ExecutorOutputs.parse(options.executor_input)
        assert outputs
        made |= {artifact["uri"] for artifact in outputs.artifacts.values()}
        seen.append(verb)
    assert seen == ["resolve", "curate", "balance", "tokenize", "train", "evaluate", "promote"]


def test_the_chats_night_has_a_channel_and_defaults_of_its_own() -> None:
    pod = pod_of(documents(NIGHTS[1])[0])
    for container in (*pod["initContainers"], *pod["containers"]):
        given = {one["name"]: one.get("value") for one in container["env"]}
        assert given["YANMO_CHANNEL"] == "chat"
    resolve = next(each for each in pod["initContainers"] if each["name"] == "resolve")
    defaults = next(one["value"] for one in resolve["env"] if one["name"] == "YANMO_DEFAULTS")
    read = read_line(defaults)
    assert read["resolve"]["start_from"] == "main/champion"
    assert OPTIONS.items() <= {f"{of}.{n}": value for of in read for n, value in read[of].items()}.items()


def test_the_window_is_held_and_released_by_a_right_to_one_queue() -> None:
    for each in documents(WINDOW / "cron-jobs.yaml"):
        verb, name, *flags = pod_of(each)["containers"][0]["args"]
        options = load(COMMANDS[name], flags, "yanmo schedule")
        assert verb == "schedule" and options.queue == "yanmo-night"
    (role,) = [each for each in documents(WINDOW / "rights.yaml") if each["kind"] == "Role"]
    (rule,) = role["rules"]
    assert rule["resourceNames"] == ["yanmo-night"] and set(rule["verbs"]) == {"get", "patch"}
