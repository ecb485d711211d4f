"""The compiled pipelines and each stage's command line agree."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kfp import dsl
from processes import no_file_above
from tiny_stages.count import STAGE as COUNT

from yanmo.options.command_line import load
from yanmo.options.fields import by_kind, names_of
from yanmo.options.one_line import MOST_CHARACTERS
from yanmo.resolve.command import main as resolve
from yanmo.stage.declaration import Stage
from yanmo.stage.form import load_shared, with_pinned
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.pointers import move_pointer
from yanmo_pipelines.compile import (
    COMPILED,
    COMPONENTS,
    PIPELINES,
    compile_pipeline,
    load_pipeline,
    main,
    version_name,
)
from yanmo_pipelines.kfp_adapter import component
from yanmo_pipelines.parameters import MAX_PARAMETER_BYTES, documents_of, pipeline_parameters
from yanmo_pipelines.resources import (
    COLUMNS,
    GPU,
    IMAGES,
    RAY_FOLDER,
    RAY_SECRET,
    RAY_VARIABLES,
    SCRATCH,
    SECRETS,
    labels_of,
    row_of,
)
from yanmo_pipelines.run_form import MAX_FORM_FIELDS, form_fields
from yanmo_pipelines.stages import STAGES, TRAIN

REAL = [stage for name in PIPELINES for stage in STAGES[name]]


@functools.cache
def specs(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pipeline and the platform document of a compiled YAML."""
    pipeline, platform = documents_of(path.read_text(encoding="utf-8"))
    return pipeline, platform


def form_fields_of(path: Path) -> dict[str, dict[str, Any]]:
    """The run form of a compiled YAML."""
    found: dict[str, dict[str, Any]] = specs(path)[0]["root"]["inputDefinitions"]["parameters"]
    return found


def defaults_of(path: Path) -> dict[str, Any]:
    """The run form as it comes: field -> default."""
    return {name: field["defaultValue"] for name, field in form_fields_of(path).items()}


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


def filled(args: list[str], values: dict[str, Any]) -> list[str]:
    def fill(found: re.Match[str]) -> str:
        return as_the_launcher_prints(values[found[1]]) if found[1] in values else "x"

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


@pytest.mark.long(few=1)
def test_every_compiled_command_parses_by_its_stages_own_parser_to_its_defaults(
    compiled: tuple[Path, Any], tmp_path: Path
) -> None:
    path, stages = compiled
    form = {**defaults_of(path), "store": str(tmp_path / "store")}
    for name, options in options_of(path, stages, form, first_task(path, form)).items():
        stage = stage_of(executors(path)[name], stages)
        for field in form_fields(stage):
            if field.name in form and form[field.name] != "auto":
                got = getattr(options, field.option)
                assert got == pytest.approx(form[field.name]) or str(got) == form[field.name], field.name
        assert options.channel == form["channel"]


def first_task(path: Path, form: dict[str, Any]) -> dict[str, str]:
    """What the first task hands on for what KFP gives it: output parameter -> its text."""
    spec = specs(path)[0]
    task, names = spec["root"]["dag"]["tasks"]["resolve"], dict[str, Any]()
    for name, wired in task["inputs"]["parameters"].items():
        if "componentInputParameter" in wired:
            names[name] = form[wired["componentInputParameter"]]
    args = [arg for arg in filled(executors(path)["resolve"]["args"], names) if "--executor" not in arg]
    args = [arg.replace("--run-id=x", "--run-id=r") for arg in args]
    have_champion(form)
    with tempfile.TemporaryDirectory() as folder:
        outputs = spec["components"]["comp-resolve"]["outputDefinitions"]
        executor_input = {
            "outputFile": f"{folder}/out.json",
            "parameters": {n: {"outputFile": f"{folder}/{n}"} for n in outputs["parameters"]},
        }
        code = resolve([*args, f"--executor-input={json.dumps({'outputs': executor_input})}"])
        assert code == 0, args
        return {n: (Path(folder) / n).read_text(encoding="utf-8") for n in outputs["parameters"]}


def have_champion(form: dict[str, Any]) -> None:
    """A pipeline that tunes another channel's champion finds one in its store."""
    channel, _, name = form.get("model_start", "").partition("/")
    if name == "champion":
        store, recipe = (
            FileStore(Path(form["store"])),
            Recipe(stage="train", revision=1, semantic={}, inputs={}),
        )

        def build(attempt: Attempt) -> Result:
            attempt.write("model.txt", "w")
            return Result(counts={})

        made = commit_once(store, recipe, build)
        assert made is not None
        move_pointer(store, channel, name, made.reference)


def options_of(path: Path, stages: Any, form: dict[str, Any], found: dict[str, str]) -> dict[str, Any]:
    """Task -> its options as its own parser reads what KFP gives it, with what the first task has left."""
    tasks, options = specs(path)[0]["root"]["dag"]["tasks"], {}
    for name, container in executors(path).items():
        if name != "resolve":
            texts = {"store": form["store"], "channel": form["channel"]}
            for parameter, wired in tasks[name]["inputs"]["parameters"].items():
                if "taskOutputParameter" in wired:
                    texts[parameter] = found[wired["taskOutputParameter"]["outputParameterKey"]]
            stage, words = stage_of(container, stages), filled(container["args"], texts)
            words = [word.replace("--run-id=x", "--run-id=r") for word in words]
            first = load_shared(words, f"yanmo {stage.name}")
            words = with_pinned(words, FileStore(Path(form["store"])), first)
            options[name] = dataclasses.replace(load(stage.config, words, f"yanmo {stage.name}"), store="s")
    return options


FILLED: dict[str, Any] = {
    "channel": "nightly",
    "data_engine": "ray",
    "data_quotas": "ci=200%,fu=200%",
    "data_sources": "s3://texts/of ours/*.jsonl",
    "model_size": "small",
    "model_tokenizer": "none",
    "model_vocabulary": 4096,
    "options": "balance.by=author curate.default_genre='a b'",
    "promote_min_gain": 0.01,
    "train_optimizer": "adamw",
    "train_seed": "7",
    "train_steps": "30",
    "training_pod_cpu": "500m",
    "training_pod_gpus": "2",
    "training_pod_memory": "64Gi",
}
"""Fields of the form -> what somebody fills in."""


@pytest.mark.process(few=1)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("name", PIPELINES)
def test_a_field_that_is_emptied_means_its_default_whatever_else_is_filled_in(
    name: str, data: st.DataObject
) -> None:
    """KFP's "Clone run" gives "" for every text that was left as it was; a number is left out."""
    path, stages = COMPILED / f"{name}.yaml", STAGES[name]
    form, defaults = form_fields_of(path), defaults_of(path)
    changed = data.draw(st.sets(st.sampled_from(sorted(FILLED.keys() & form.keys()))))
    emptied = data.draw(st.sets(st.sampled_from(sorted(form.keys() - {"store"})))) - changed
    texts = {field for field in emptied if form[field]["parameterType"] == "STRING"}
    nothing = data.draw(st.sampled_from(["", " "]))
    filled_in = {**defaults, **{field: FILLED[field] for field in changed}}
    with tempfile.TemporaryDirectory() as store:
        form = {**filled_in, "store": store}
        whole = first_task(path, form)
        of_whole = options_of(path, stages, form, whole)
        form |= dict.fromkeys(texts, nothing)
        assert first_task(path, form) == whole
        of_clone = options_of(path, stages, form, whole)
    assert of_clone == of_whole
    assert all(
        by_kind(of_clone[task], "semantic") == by_kind(of_whole[task], "semantic") for task in of_whole
    )


@pytest.mark.parametrize("name", PIPELINES)
def test_each_field_alone_and_all_of_them_may_be_emptied(name: str, tmp_path: Path) -> None:
    """KFP's "Clone run" gives "" for every text that was left as it was; a number is left out."""
    path, store = COMPILED / f"{name}.yaml", str(tmp_path / "store")
    form, defaults = form_fields_of(path), defaults_of(path)
    texts = [name for name in form if form[name]["parameterType"] == "STRING" and name != "store"]
    whole = first_task(path, {**defaults, "store": store})
    for emptied in (*([field] for field in texts), texts):
        assert first_task(path, {**defaults, **dict.fromkeys(emptied, ""), "store": store}) == whole, emptied
    given = {field: text for field, text in FILLED.items() if field in form} | {"store": store}
    of_given = first_task(path, {**defaults, **given})
    assert first_task(path, {**defaults, **dict.fromkeys(texts, " "), **given}) == of_given != whole
    by_hand = pipeline_parameters(path, dict.fromkeys(form.keys() - {"store", "channel"}, ""))
    assert by_hand == {}, "yanmo run --set field="
    assert "curate.sources=bundled" in whole["options"]


def test_what_is_filled_in_reaches_its_stage_and_its_pod(tmp_path: Path) -> None:
    path = COMPILED / "language_model.yaml"
    form = defaults_of(path) | FILLED
    form["options"] += " train.warmup_steps=3 resolve.training_pod_nodes='pool=gpu,disk=fast'"
    form["options"] += " resolve.training_pod_tolerations=a=b:NoExecute,c"
    form["store"] = str(tmp_path / "store")
    found = first_task(path, form)
    options = options_of(path, STAGES["language_model"], form, found)
    assert (
        options["train"].steps == 30 and options["train"].warmup_steps == 3 and options["train"].width == 512
    )
    assert options["balance"].quotas == "ci=200%,fu=200%" and options["balance"].by == "author"
    assert options["curate"].sources == "s3://texts/of ours/*.jsonl"
    assert options["curate"].engine == options["tokenize"].engine == "ray", "one field, two stages"
    assert options["promote"].min_gain == 0.01 and options["tokenize"].vocab_size == 4096
    assert {task.channel for task in options.values()} == {"nightly"}
    pod = {n.removeprefix("training_pod_"): text for n, text in found.items() if "_pod_" in n}
    nodes, tolerations = json.loads(pod.pop("nodes")), json.loads(pod.pop("tolerations"))
    assert pod == {"cpu": "500m", "memory": "64Gi", "gpus": "2"}
    assert nodes == {"pool": "gpu", "disk": "fast"}
    assert tolerations == [
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"},
        {"key": "c", "operator": "Exists"},
    ]


def test_every_input_is_wired_pinned_or_none_so_that_no_task_follows_a_pointer(
    compiled: tuple[Path, Any],
) -> None:
    path, stages = compiled
    for name, container in executors(path).items():
        stage = stage_of(container, stages)
        given = dict(arg.split("=", 1) for arg in container["args"])
        for field in dataclasses.fields(stage.config):
            if field.metadata["kind"] == "input":
                value = given.get("--" + field.name.replace("_", "-"), "")
                comes = value == "none" or value.startswith("pinned:") or ".path}}" in value
                carrier = given.get("--" + field.metadata["inside"].replace("_", "-"), "")
                assert comes or (not value and ".path}}" in carrier), f"{name}: --{field.name}={value}"


def test_where_a_disk_is_full_the_file_that_is_compiled_is_named(tmp_path: Path) -> None:
    with no_file_above(100), pytest.raises(OSError) as raised:
        compile_pipeline(load_pipeline("data_only"), tmp_path / "p.yaml")
    assert raised.value.filename == str(tmp_path / "p.yaml") and not list(tmp_path.iterdir())


FILLED_BY_THE_LAUNCHER = re.compile(
    r"\{\{\$(\.(inputs|outputs)\.(artifacts\['\w+'\]\.(path|uri)|parameters\['\w+'\](\.output_file)?))?\}\}"
)
"""backend/src/v2/component/launcher_v2.go, getPlaceholders (2.17.0). The SDK's local runner fills more: there
`{{$.pipeline_job_uuid}}` in an argument works; a cluster leaves it as it is, the same text for every run."""
FILLED_BY_THE_DRIVER = re.compile(r"\{\{\$\.pipeline_\w+\}\}")
"""backend/src/v2/driver/resolve.go: only as the whole constant of a task's input."""


def test_a_cluster_fills_every_placeholder(compiled: tuple[Path, Any]) -> None:
    path, _ = compiled
    for name, container in executors(path).items():
        left = [arg for arg in container["args"] if "{{" in FILLED_BY_THE_LAUNCHER.sub("", arg)]
        assert left == [], f"{name}: KFP's launcher does not know this placeholder"
    for name, task in specs(path)[0]["root"]["dag"]["tasks"].items():
        given = task["inputs"]["parameters"]
        constants = [
            str(p["runtimeValue"].get("constant", "")) for p in given.values() if "runtimeValue" in p
        ]
        assert all(FILLED_BY_THE_DRIVER.fullmatch(text) for text in constants if "{{$.pipeline_" in text), (
            name
        )
        assert given["run_id"]["runtimeValue"]["constant"] == dsl.PIPELINE_JOB_ID_PLACEHOLDER


def test_no_task_is_cached_by_kfp_and_each_is_tried_again_soon_and_longer_than_an_hour(
    compiled: tuple[Path, Any],
) -> None:
    """Argo waits every backoff out, also before what no retry mends: at most 20 s until the run is red."""
    for name, task in specs(compiled[0])[0]["root"]["dag"]["tasks"].items():
        assert not task.get("cachingOptions", {}).get("enableCache"), f"{name}: the store is the only cache"
        policy = task["retryPolicy"]
        first, factor = float(policy["backoffDuration"].rstrip("s")), float(policy["backoffFactor"])
        assert policy["maxRetryCount"] == 3, name
        assert sum(first * factor**number for number in range(3)) <= 20, name
        assert int(policy["backoffMaxDuration"].rstrip("s")) >= 7 * 86400, name


_PARAMETER = re.compile(r"inputs\.parameters\[\W*([\w-]+)\W*\]")


def kinds_of_limits(spec: dict[str, Any]) -> dict[str, str]:
    """Parameter that goes into a pod's limit or request -> the type of what it comes from.

    KFP's driver (2.17.0) reads them by GetStringValue, which is "" for a number: an accelerator's limit is
    then dropped without a word, and one of CPU or memory ends the run.
    """
    found, tasks = {}, spec["root"]["dag"]["tasks"]
    for task in tasks.values():
        executor = spec["components"][task["componentRef"]["name"]]["executorLabel"]
        resources = str(spec["deploymentSpec"]["executors"][executor]["container"].get("resources", {}))
        for parameter in _PARAMETER.findall(resources):
            wired = task["inputs"]["parameters"][parameter]
            if source := wired.get("componentInputParameter"):
                declared = spec["root"]["inputDefinitions"]["parameters"][source]
            else:
                output = wired["taskOutputParameter"]
                producer = spec["components"][tasks[output["producerTask"]]["componentRef"]["name"]]
                declared = producer["outputDefinitions"]["parameters"][output["outputParameterKey"]]
            found[parameter] = declared["parameterType"]
    return found


def test_whatever_goes_into_a_limit_comes_from_a_string(compiled: tuple[Path, Any]) -> None:
    kinds = kinds_of_limits(specs(compiled[0])[0])
    assert set(kinds.values()) <= {"STRING"}
    assert bool(kinds) == any(s.name == "train" for s in compiled[1])


def test_the_form_is_small_ascii_and_asks_for_nothing(compiled: tuple[Path, Any]) -> None:
    path, _ = compiled
    text = path.read_text(encoding="utf-8")
    assert text.isascii(), "KFP's MySQL may refuse anything else (kubeflow/pipelines#7283)"
    form = specs(path)[0]["root"]["inputDefinitions"]["parameters"]
    assert len(form) <= MAX_FORM_FIELDS, "leave one off the form: the field `options` takes it"
    values = {n: "x" * MOST_CHARACTERS if n == "options" else f["defaultValue"] for n, f in form.items()}
    assert len(json.dumps(values)) < MAX_PARAMETER_BYTES, "all defaults and a full line of options"
    for name, field in form.items():
        assert field["defaultValue"] is not None, f"{name}: nothing is required"
        assert field["description"] and "\n" not in field["description"]


def test_choices_are_drop_downs(tiny_yaml: Path) -> None:
    form = specs(tiny_yaml)[0]["root"]["inputDefinitions"]["parameters"]
    assert form["count_unit"]["literals"] == ["characters", "bytes"]
    assert "literals" not in form["count_factor"]


def test_a_field_that_a_preset_may_set_is_a_text_that_says_auto() -> None:
    form = specs(COMPILED / "language_model.yaml")[0]["root"]["inputDefinitions"]["parameters"]
    of_resolve = {"train_unfinished"}
    fields = {name: form[name] for name in form if name.startswith("train_") and name not in of_resolve}
    for name in fields:
        assert (fields[name]["parameterType"], fields[name]["defaultValue"]) == ("STRING", "auto"), name
        assert "auto or empty: " in fields[name]["description"]


@pytest.mark.parametrize("empty", [None, "", "auto"])
def test_a_preset_is_not_beaten_by_the_other_fields_of_the_form(empty: str | None, tmp_path: Path) -> None:
    from yanmo.train.config import STAGE

    path = COMPILED / "language_model.yaml"
    form = defaults_of(path)
    if empty is not None:
        form |= {field.name: empty for field in form_fields(STAGE)}
    form |= {"store": str(tmp_path / "store"), "train_preset": "debug"}

    def trained(**changed: str) -> Any:
        filled_in = {**form, **changed}
        found = first_task(path, filled_in)
        return options_of(path, STAGES["language_model"], filled_in, found)["train"]

    got = trained(options="train.warmup_steps=3 balance.by=author")
    assert (got.steps, got.seed, got.muon_learning_rate, got.warmup_steps) == (20, 0, 0.02, 3)
    assert trained(train_steps="30").steps == 30


def test_options_off_the_form_are_no_parameters(tiny_yaml: Path) -> None:
    spec = specs(tiny_yaml)[0]
    assert "collect_limit" not in spec["root"]["inputDefinitions"]["parameters"]
    assert not any("--limit" in arg for arg in executors(tiny_yaml)["collect"]["args"])


def pods_of(path: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Task -> its container, and what Kubernetes is told of its pod."""
    platform = specs(path)[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    return {name: (container, platform[f"exec-{name}"]) for name, container in executors(path).items()}


def check_pod(stage: Stage, column: str, container: dict[str, Any], pod: dict[str, Any]) -> None:
    """That a task's pod is what its row of the table says."""
    assert container["image"] == IMAGES[stage.image]
    of_ray = {RAY_SECRET: RAY_FOLDER} if "engine" in names_of(stage.config) else {}
    assert {s["secretName"]: s["mountPath"] for s in pod["secretAsVolume"]} == SECRETS | of_ray
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert {n: v for n, v in variables.items() if n.startswith("RAY_")} == (RAY_VARIABLES if of_ray else {})
    assert all(s["optional"] for s in pod["secretAsVolume"])
    row, found = row_of(column, stage.name), container["resources"]
    on_the_form = stage.name in ("train", "evaluate")
    for limit, said in (("Memory", row.memory), ("Cpu", row.cpu)):
        given = found[f"resource{limit}Limit"]
        assert given == found[f"resource{limit}Request"]
        assert ("resolve-training_pod_" in given) if on_the_form else given == said
    assert bool(row.gpus) == ("accelerator" in found), "a stage that never uses a GPU asks for none"
    if on_the_form:
        gpus = found["accelerator"]
        assert "training_pod_gpus" in gpus["resourceCount"] and gpus["resourceType"] == GPU
    mounts = {m["mountPath"]: m.get("sizeLimit") for m in pod["emptyDirMounts"]}
    assert mounts == {SCRATCH: None} | ({"/dev/shm": row.shared_memory} if row.shared_memory else {})
    assert [list(one) for one in pod.get("tolerations", [])] == [["tolerationJson"]] * on_the_form
    assert ("nodeSelectorJson" in pod.get("nodeSelector", {})) == on_the_form
    assert pod["podMetadata"]["labels"] == labels_of(stage.name)
    assert pod["securityContext"] == {"runAsNonRoot": True}, "a namespace may enforce `restricted`"


@pytest.mark.parametrize("column", COLUMNS)
def test_every_pod_is_what_its_column_of_the_one_table_says(column: str, tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path), f"--resources={column}"]) == 0
    for name in PIPELINES:
        path = tmp_path / f"{name}.yaml"
        for container, pod in pods_of(path).values():
            check_pod(stage_of(container, STAGES[name]), column, container, pod)
        form = defaults_of(path)
        found = first_task(path, {**form, "store": str(tmp_path / "store")})
        pod = {n.removeprefix("training_pod_"): text for n, text in found.items() if "_pod_" in n}
        if TRAIN not in STAGES[name]:
            assert not any("_pod_" in field for field in form), "it trains nothing"
            continue
        row = row_of(column, "train")
        assert (pod["cpu"], pod["memory"], pod["gpus"]) == (row.cpu, row.memory, row.gpus)
        assert all(form[f"training_pod_{limit}"] == pod[limit] for limit in ("cpu", "memory", "gpus"))
        tolerated = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}] if column == "gpu" else []
        assert json.loads(pod["nodes"]) == {} and json.loads(pod["tolerations"]) == tolerated


def test_another_secret_may_name_the_store_and_another_registry_the_images_with_ray_or_without(
    tmp_path: Path,
) -> None:
    assert main([f"--out={tmp_path}", "--store-secret=team-b", "--ray", "--image-prefix=r.example/"]) == 0
    for name in PIPELINES:
        for container, pod in pods_of(tmp_path / f"{name}.yaml").values():
            plain = f"r.example/{IMAGES[stage_of(container, STAGES[name]).image]}"
            assert container["image"] == plain.replace("/yanmo-data:", "/yanmo-data-ray:")
            mounted = {s["secretName"]: s["mountPath"] for s in pod["secretAsVolume"]}
            mounted.pop(RAY_SECRET, None)
            assert mounted == {"team-b": SECRETS["yanmo-store"], **dict(list(SECRETS.items())[1:])}
    for wrong in ("", "Team", "a_b", "-a", "a" * 64):
        assert main([f"--out={tmp_path}", f"--store-secret={wrong}"]) == 64


def gibibytes(quantity: str) -> float:
    return float(quantity[:-2]) * {"Gi": 1.0, "Mi": 1 / 1024}[quantity[-2:]]


def test_the_columns_rise_and_know_every_stage() -> None:
    stages = {stage.name for stage in REAL}
    assert all(set(rows) == stages for rows in COLUMNS.values())
    for stage in stages:
        rows = [rows[stage] for rows in COLUMNS.values()]
        memory = [gibibytes(row.memory) for row in rows]
        assert memory == sorted(memory)
        for row in rows:
            assert gibibytes(row.shared_memory or "0Gi") < gibibytes(row.memory), "it counts against it"


def test_a_versions_name_is_one_that_kubernetes_takes_and_changes_with_the_bytes(tmp_path: Path) -> None:
    names = set()
    for column in COLUMNS:
        for text in ("a", "b", "a"):
            (tmp_path / "p.yaml").write_text(text)
            names.add(version_name(tmp_path / "p.yaml", column))
    assert len(names) == 2 * len(COLUMNS)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name) and len(name) < 100 for name in names)


def test_the_committed_yaml_is_what_compiling_gives(tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path)]) == 0
    for name in PIPELINES:
        fresh = (tmp_path / f"{name}.yaml").read_bytes()
        assert (COMPILED / f"{name}.yaml").read_bytes() == fresh, "run `yanmo compile` and commit the result"
    for name in COMPONENTS:
        fresh = (tmp_path / f"components/{name}.yaml").read_bytes()
        assert (COMPILED / f"components/{name}.yaml").read_bytes() == fresh, name
    left = {p.name for p in tmp_path.iterdir()} - {f"{n}.yaml" for n in PIPELINES} - {"components"}
    assert not left and len(list((tmp_path / "components").iterdir())) == len(COMPONENTS), (
        "no temporary is left"
    )


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


def test_a_tuned_model_is_measured_beside_the_one_that_it_was_tuned_from() -> None:
    """The chat pipeline is the other one with one more input of a task, and other defaults."""
    chat, model = "chat", "language_model"
    tasks = {name: specs(COMPILED / f"{name}.yaml")[0]["root"]["dag"]["tasks"] for name in (chat, model)}
    assert tasks[chat] == tasks[model]
    args = {name: set(executors(COMPILED / f"{name}.yaml")["evaluate"]["args"]) for name in (chat, model)}
    assert {arg for arg in args[chat] - args[model] if "--channel" not in arg} == {
        "--base=pinned:start_model"
    }
    forms = {name: form_fields_of(COMPILED / f"{name}.yaml") for name in (chat, model)}
    assert forms[chat].keys() == forms[model].keys()
    other = {name for name, field in forms[chat].items() if field != forms[model][name]}
    assert other == {"channel", "data_sources", "data_quotas", "model_start", "train_steps"}


@pytest.mark.parametrize("name", PIPELINES)
def test_the_graph_is_flat_small_and_its_arrows_are_those_of_the_data(name: str) -> None:
    """A nested pipeline or a condition costs pods of its own and hides the outcome; of more boxes and arrows
    than these KFP's page makes labels that nobody can read."""
    spec = specs(COMPILED / f"{name}.yaml")[0]
    tasks, components = spec["root"]["dag"]["tasks"], spec["components"]
    assert not any("dag" in part for part in components.values())
    artifacts = [
        each
        for task in tasks.values()
        for each in components[task["componentRef"]["name"]].get("outputDefinitions", {}).get("artifacts", {})
    ]
    assert len(tasks) <= 7 and len(artifacts) <= 14
    after = {name for task in tasks.values() for name in task.get("dependentTasks", ())}
    assert len(tasks.keys() - after) == 1, "one task comes last"

    def depth(name: str) -> int:
        return 1 + max(map(depth, tasks[name].get("dependentTasks", ())), default=0)

    assert max(map(depth, tasks)) == len(tasks), "one after the other"
    of_first = {name for name, task in tasks.items() if "resolve" in task.get("dependentTasks", ())}
    assert of_first <= {"curate", "train", "launch", "evaluate"}, "only those whose pods the form sizes"
