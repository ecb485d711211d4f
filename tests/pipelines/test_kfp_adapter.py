"""The compiled pipelines and each stage's command line agree."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import dsl
from tiny_stages.count import STAGE as COUNT

from yanmo.common.errors import UsageError
from yanmo.options.command_line import load
from yanmo.options.one_line import MOST_CHARACTERS
from yanmo.stage.declaration import Stage
from yanmo_pipelines.compile import COMPILED, PIPELINES, compile_pipeline, load_pipeline, main
from yanmo_pipelines.kfp_adapter import MAX_FORM_FIELDS, component, form_fields
from yanmo_pipelines.parameters import MAX_PARAMETER_BYTES, pipeline_parameters
from yanmo_pipelines.resources import IMAGES, SCRATCH, SECRETS, TABLE
from yanmo_pipelines.stages import STAGES

REAL = [stage for name in PIPELINES for stage in STAGES[name]]


def specs(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pipeline and the platform document of a compiled YAML."""
    pipeline, platform = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return pipeline, platform


def executors(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = specs(path)[0]["deploymentSpec"]["executors"]
    return {name.removeprefix("exec-"): e["container"] for name, e in found.items()}


def stage_of(container: dict[str, Any], stages: Any) -> Stage:
    return next(s for s in stages if s.module == container["command"][2])


def as_the_launcher_prints(value: Any) -> str:
    """backend/src/v2/metadata/converter.go, PbValueToText: no exponent, no trailing .0, true / false."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:.17f}".rstrip("0").rstrip(".")
    return str(value)


def as_kfp_local_prints(value: Any) -> str:
    return (
        str(float(value)) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
    )


def filled(args: list[str], values: dict[str, Any], show: Any) -> list[str]:
    def fill(found: re.Match[str]) -> str:
        return show(values[found[1]]) if found[1] in values else "x"

    texts = [re.sub(r"\{\{\$\.inputs\.parameters\['(\w+)'\]\}\}", fill, arg) for arg in args]
    return [re.sub(r"\{\{\$.*?\}\}", "x", text) for text in texts]


@pytest.fixture(params=[*PIPELINES, "tiny"])
def compiled(request: pytest.FixtureRequest, tmp_path: Path, tiny_yaml: Path) -> tuple[Path, Any]:
    """A freshly compiled pipeline and its stages."""
    if request.param == "tiny":
        from tiny_stages.pipeline import STAGES as TINY_STAGES  # 3 s: every worker reads this file

        return tiny_yaml, TINY_STAGES
    compile_pipeline(load_pipeline(request.param), tmp_path / "p.yaml")
    return tmp_path / "p.yaml", STAGES[request.param]


@pytest.mark.parametrize("show", [as_the_launcher_prints, as_kfp_local_prints])
def test_every_compiled_command_parses_by_its_stages_own_parser_to_its_defaults(
    compiled: tuple[Path, Any], show: Any
) -> None:
    path, stages = compiled
    for name, container in executors(path).items():
        stage = stage_of(container, stages)
        defaults = {f.option: f.default for f in form_fields(stage)}
        required = {"sources": "some text"} if "sources" in defaults else {}
        required |= {"options": "", "given_options": ""}
        options = load(stage.config, filled(container["args"], {**defaults, **required}, show), name)
        for field in dataclasses.fields(stage.config):
            if field.name in defaults and field.name not in required:
                assert getattr(options, field.name) == pytest.approx(field.default), (name, field.name)


def test_every_input_is_wired_or_none_so_that_no_task_follows_a_pointer(compiled: tuple[Path, Any]) -> None:
    path, stages = compiled
    for name, container in executors(path).items():
        stage = stage_of(container, stages)
        given = dict(arg.split("=", 1) for arg in container["args"])
        for field in dataclasses.fields(stage.config):
            if field.metadata["kind"] == "input":
                value = given["--" + field.name.replace("_", "-")]
                assert value == "none" or ".path}}" in value, f"{name}: --{field.name}={value}"


def all_tasks(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    dags = [spec["root"]["dag"], *(c["dag"] for c in spec["components"].values() if "dag" in c)]
    return {name: task for dag in dags for name, task in dag["tasks"].items()}


def test_kfps_cache_is_off_on_every_task(compiled: tuple[Path, Any]) -> None:
    for name, task in all_tasks(specs(compiled[0])[0]).items():
        assert not task.get("cachingOptions", {}).get("enableCache"), f"{name}: the store is the only cache"


def test_every_container_task_is_retried_longer_than_kfps_one_hour(compiled: tuple[Path, Any]) -> None:
    spec = specs(compiled[0])[0]
    containers = {
        n
        for n, t in all_tasks(spec).items()
        if "executorLabel" in spec["components"][t["componentRef"]["name"]]
    }
    assert containers
    for name in containers:
        policy = all_tasks(spec)[name]["retryPolicy"]
        assert int(policy["backoffMaxDuration"].rstrip("s")) >= 7 * 86400 and policy["maxRetryCount"] >= 1, (
            name
        )


def test_every_parameter_a_task_uses_reaches_the_group_it_is_in(compiled: tuple[Path, Any]) -> None:
    """KFP 2.17.0 forgets what only an accelerator limit uses; such a task cannot start."""
    spec = specs(compiled[0])[0]
    for name, part in spec["components"].items():
        if "dag" not in part:
            continue
        given = part.get("inputDefinitions", {}).get("parameters", {}).keys()
        for task in part["dag"]["tasks"].values():
            for value in task.get("inputs", {}).get("parameters", {}).values():
                wanted = value.get("componentInputParameter")
                assert wanted is None or wanted in given, f"{name} lacks {wanted}"


_PARAMETER = re.compile(r"inputs\.parameters\[\W*([\w-]+)\W*\]")


def wrong_limits(spec: dict[str, Any]) -> tuple[int, list[str]]:
    """How many parameters go into a pod's limits and requests, and those on the way that are no STRING.

    KFP's driver (2.17.0) reads them by GetStringValue, which is "" for a number: an accelerator's limit is
    then dropped without a word, and one of CPU or memory ends the run.
    """
    count, wrong = 0, []
    for where, part in {"root": spec["root"], **spec["components"]}.items():
        types = parameter_types(part)
        for name, task in part.get("dag", {}).get("tasks", {}).items():
            component = spec["components"][task["componentRef"]["name"]]
            executor = spec["deploymentSpec"]["executors"].get(component.get("executorLabel"), {})
            given = task.get("inputs", {}).get("parameters", {})
            for parameter in _PARAMETER.findall(str(executor.get("container", {}).get("resources", {}))):
                count += 1
                source = given[parameter].get("componentInputParameter")
                if types.get(source) != "STRING":
                    wrong.append(f"{name}: {source} of {where} is {types.get(source)}")
            wanted = parameter_types(component)
            for parameter, value in given.items():  # on its way through nested pipelines
                source = value.get("componentInputParameter")
                if source and wanted.get(parameter, types[source]) != types[source]:
                    wrong.append(f"{name}: {parameter} is {wanted[parameter]}, {source} is {types[source]}")
    return count, wrong


def parameter_types(part: dict[str, Any]) -> dict[str, str]:
    declared = part.get("inputDefinitions", {}).get("parameters", {})
    return {name: one["parameterType"] for name, one in declared.items()}


def test_whatever_goes_into_a_limit_comes_from_a_string(compiled: tuple[Path, Any]) -> None:
    count, wrong = wrong_limits(specs(compiled[0])[0])
    assert not wrong and bool(count) == any(s.name in ("train", "count") for s in compiled[1])


@pytest.mark.parametrize("kind", [int, float, bool, str])
@pytest.mark.parametrize("limit", ["accelerator", "cpu", "memory"])
def test_the_guard_of_limits_finds_a_number_in_any_of_them(kind: type, limit: str, tmp_path: Path) -> None:
    """So that a later limit on the form cannot be dropped as that of the GPUs was."""
    from kfp import compiler

    @dsl.container_component
    def work():
        return dsl.ContainerSpec(image="x", command=["true"])

    def pipeline(amount):
        task = work()
        if limit == "accelerator":
            task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(amount)
        else:
            getattr(task, f"set_{limit}_limit")(amount)

    pipeline.__annotations__["amount"] = kind
    compiler.Compiler().compile(dsl.pipeline(name="p")(pipeline), str(tmp_path / "p.yaml"))
    count, wrong = wrong_limits(next(yaml.safe_load_all((tmp_path / "p.yaml").read_text(encoding="utf-8"))))
    assert count == 1 and bool(wrong) == (kind is not str)


def test_the_gpus_of_the_form_reach_the_pods_of_training_and_of_both_evaluations() -> None:
    spec = specs(COMPILED / "language_model.yaml")[0]
    form = spec["root"]["inputDefinitions"]["parameters"]["training_pod_gpus"]
    assert form["parameterType"] == "STRING" and form["defaultValue"] == "0"
    for name in ("train", "evaluate", "evaluate-champion"):
        accelerator = executors(COMPILED / "language_model.yaml")[name]["resources"]["accelerator"]
        assert (
            "training_pod_gpus" in accelerator["resourceCount"]
            and accelerator["resourceType"] == "nvidia.com/gpu"
        )


def test_the_form_is_small_ascii_and_asks_for_nothing(compiled: tuple[Path, Any]) -> None:
    path, _ = compiled
    text = path.read_text(encoding="utf-8")
    assert text.isascii(), "KFP's MySQL may refuse anything else (kubeflow/pipelines#7283)"
    form = specs(path)[0]["root"]["inputDefinitions"]["parameters"]
    assert len(form) <= MAX_FORM_FIELDS
    for name, field in form.items():
        assert field["defaultValue"] is not None, f"{name}: nothing is required"
        assert field["description"] and "\n" not in field["description"]


def test_all_defaults_and_a_full_line_of_options_stay_below_the_servers_limit(
    compiled: tuple[Path, Any],
) -> None:
    form = specs(compiled[0])[0]["root"]["inputDefinitions"]["parameters"]
    values = {n: "x" * MOST_CHARACTERS if n == "options" else f["defaultValue"] for n, f in form.items()}
    assert len(json.dumps(values)) < MAX_PARAMETER_BYTES


def test_choices_are_drop_downs(tiny_yaml: Path) -> None:
    form = specs(tiny_yaml)[0]["root"]["inputDefinitions"]["parameters"]
    assert form["count_unit"]["literals"] == ["characters", "bytes"]
    assert "literals" not in form["count_factor"]


def test_a_field_that_a_preset_may_set_is_a_text_that_says_auto() -> None:
    form = specs(COMPILED / "language_model.yaml")[0]["root"]["inputDefinitions"]["parameters"]
    fields = {name: field for name, field in form.items() if name.startswith("train_")}
    for name in fields:
        assert (fields[name]["parameterType"], fields[name]["defaultValue"]) == ("STRING", "auto"), name
        assert "auto or empty: " in fields[name]["description"]


@pytest.mark.parametrize("empty", [None, "", "auto"])
def test_a_preset_is_not_beaten_by_the_other_fields_of_the_form(empty: str | None) -> None:
    from yanmo.train.config import STAGE, TrainConfig

    values = {f.option: f.default if empty is None else empty for f in form_fields(STAGE)}
    values["preset"] = "debug"
    argv = filled(
        executors(COMPILED / "language_model.yaml")["train"]["args"],
        {**values, "options": "train.warmup_steps=3 balance.by=author"},
        as_the_launcher_prints,
    )
    got = load(TrainConfig, argv, "yanmo train")
    assert (got.steps, got.seed, got.muon_learning_rate, got.warmup_steps) == (20, 0, 0.02, 3)
    argv = filled(
        executors(COMPILED / "language_model.yaml")["train"]["args"],
        {**values, "options": "", "steps": "30"},
        as_the_launcher_prints,
    )
    assert load(TrainConfig, argv, "yanmo train").steps == 30


def test_options_off_the_form_are_no_parameters(tiny_yaml: Path) -> None:
    spec = specs(tiny_yaml)[0]
    assert "collect_limit" not in spec["root"]["inputDefinitions"]["parameters"]
    assert not any("--limit" in arg for arg in executors(tiny_yaml)["collect"]["args"])


def test_resources_secrets_and_shared_memory_come_from_the_one_table(compiled: tuple[Path, Any]) -> None:
    path, stages = compiled
    platform = specs(path)[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for name, container in executors(path).items():
        stage = stage_of(container, stages)
        assert container["image"] == IMAGES[stage.image]
        secrets = {s["secretName"]: s["mountPath"] for s in platform[f"exec-{name}"]["secretAsVolume"]}
        assert secrets == SECRETS and all(s["optional"] for s in platform[f"exec-{name}"]["secretAsVolume"])
        row = TABLE.get(stage.name)
        if row:
            limit = container["resources"]["resourceMemoryLimit"]
            assert (
                ("training_pod_memory" in limit)
                if stage.name in ("train", "evaluate")
                else limit == row.memory
            )
        mounts = platform[f"exec-{name}"].get("emptyDirMounts", [])
        assert [m["mountPath"] for m in mounts] == [
            SCRATCH,
            *(["/dev/shm"] if row and row.shared_memory else []),
        ]


def test_the_committed_yaml_is_what_compiling_gives(tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path)]) == 0
    for name in PIPELINES:
        fresh = (tmp_path / f"{name}.yaml").read_bytes()
        assert (COMPILED / f"{name}.yaml").read_bytes() == fresh, "run `yanmo compile` and commit the result"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"{n}.yaml" for n in PIPELINES), (
        "no temporary is left"
    )


def test_a_registry_is_put_before_every_image(tmp_path: Path) -> None:
    main(["--out", str(tmp_path), "--image-prefix=registry.example/team/"])
    for name in PIPELINES:
        images = {c["image"] for c in executors(tmp_path / f"{name}.yaml").values()}
        assert images and all(image.startswith("registry.example/team/yanmo-") for image in images)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "count: required input documents is not wired"),
        (
            {"documents": dsl.Dataset, "lines": dsl.Dataset},
            "count has no input lines; it has documents, earlier",
        ),
    ],
)
def test_wrong_wiring_is_refused_when_compiling(inputs: dict[str, type], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        component(COUNT, inputs)


@pytest.mark.parametrize("stage", REAL, ids=lambda s: s.name)
def test_every_option_of_a_stage_is_described_in_one_ascii_line(stage: Stage) -> None:
    for field in dataclasses.fields(stage.config):
        text = field.metadata["help"]
        assert text and text.isascii() and "\n" not in text, f"{stage.name} --{field.name}"
        assert str(field.default).isascii(), f"{stage.name} --{field.name}: default {field.default!r}"


def test_tasks_are_named_by_their_verbs() -> None:
    names = set(executors(COMPILED / "language_model.yaml"))
    assert names == {s.name for s in STAGES["language_model"]} | {"evaluate-champion"}
    assert set(executors(COMPILED / "data_only.yaml")) == {"resolve", "curate", "balance", "tokenize"}


def test_the_graph_is_flat_and_its_last_task_is_promote() -> None:
    """A nested pipeline or a condition costs pods of its own and hides the outcome."""
    spec = specs(COMPILED / "language_model.yaml")[0]
    tasks = spec["root"]["dag"]["tasks"]
    assert len(tasks) <= 8 and not any("dag" in part for part in spec["components"].values())
    after = {name for task in tasks.values() for name in task.get("dependentTasks", ())}
    assert tasks.keys() - after == {"promote"}

    def depth(name: str) -> int:
        return 1 + max(map(depth, tasks[name].get("dependentTasks", ())), default=0)

    assert depth("promote") == 7, "the two evaluations are side by side"


@pytest.mark.parametrize("text", ["two", "", "-1", "1.5", "1 "])
def test_a_number_of_gpus_is_checked_before_the_first_task(text: str) -> None:
    """The field is a text, as KFP drops a limit that is a number."""
    with pytest.raises(UsageError, match=r"training_pod_gpus=.*: expected a whole number of GPUs"):
        pipeline_parameters(COMPILED / "language_model.yaml", {"training_pod_gpus": text})
    assert pipeline_parameters(COMPILED / "language_model.yaml", {"training_pod_gpus": "2"}) == {
        "training_pod_gpus": "2"
    }
