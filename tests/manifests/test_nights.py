"""A night without KFP: known field by field; its command lines are those of the pipeline."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest
import yaml
from rendered import MANIFESTS

from yanmo.options.command_line import load
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo_pipelines.stages import LANGUAGE_MODEL

validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
NIGHT = MANIFESTS / "components/night/cron-job.yaml"


def written() -> Any:
    spec = importlib.util.spec_from_file_location("night_write", MANIFESTS / "night/write.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_nights_pod_is_the_compiled_pipeline() -> None:
    expected = written().text("standard")
    assert NIGHT.read_text(encoding="utf-8") == expected, "run manifests/night/write.py"


@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_the_cron_job_is_known_field_by_field(version: str) -> None:
    validate.validate(yaml.safe_load(NIGHT.read_text(encoding="utf-8")), version, strict=True)


def test_each_stage_of_the_night_reads_its_command_line() -> None:
    line = "curate.sources=bundled train.night=21:00-08:00 train.when_busy=end"
    cron_job = yaml.safe_load(NIGHT.read_text(encoding="utf-8"))
    pod = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
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
