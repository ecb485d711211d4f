"""The pipeline by which a person decides in KFP's UI: its form, and what its task does in a real store."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from yanmo.promote.history.champion_records import all_records
from yanmo.store.channel.held import Entry, days_from, put
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Reference
from yanmo.store.output import Output
from yanmo.store.schema import utc_now
from yanmo_pipelines.compile import COMPILED

FORM = {"channel": "dev", "decision": "approve", "model": "", "who": "li", "why": "reads well"}


def spec() -> dict[str, Any]:
    found: dict[str, Any] = next(
        yaml.safe_load_all((COMPILED / "decide_promotion.yaml").read_text(encoding="utf-8"))
    )
    return found


def command(form: dict[str, str], outputs: Path) -> list[str]:
    """What the task runs when somebody fills in the form so; its outputs go below the folder."""
    (executor,) = spec()["deploymentSpec"]["executors"].values()
    (task,) = spec()["root"]["dag"]["tasks"].values()
    wired = {n: form[w["componentInputParameter"]] for n, w in task["inputs"]["parameters"].items()}
    words = [*executor["container"]["command"], *executor["container"]["args"]]
    placeholder = re.compile(r"\{\{\$\.inputs\.parameters\['(\w+)'\]\}\}")
    asked = {
        "artifacts": {"page": {"artifacts": [{"name": "page", "uri": str(outputs / "page")}]}},
        "parameters": {"result": {"outputFile": str(outputs / "result")}},
        "outputFile": str(outputs / "executor_output.json"),
    }
    words = [word.replace("{{$}}", json.dumps({"outputs": asked})) for word in words]
    found = [placeholder.sub(lambda name: wired[name[1]], word) for word in words]
    return [sys.executable, *found[1:]]


def decided(store: FileStore, **form: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("YANMO_")}
    return subprocess.run(
        command({**FORM, "store": store.uri, **form}, store.root.parent / "outputs"),
        capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_the_form_asks_who_and_why_and_offers_the_two_decisions() -> None:
    form = spec()["root"]["inputDefinitions"]["parameters"]
    assert set(form) == {"channel", "decision", "model", "store", "who", "why"}
    assert form["decision"]["literals"] == ["approve", "reject"]
    assert {name for name, said in form.items() if "defaultValue" not in said} == {"who", "why"}


def made(store: FileStore, stage: str, files: dict[str, str], **inputs: Output) -> Output:
    def build(attempt: Attempt) -> Result:
        for name, text in files.items():
            attempt.write(name, text)
        return Result(counts={})

    output = commit_once(store, Recipe(stage=stage, revision=1, semantic={}, inputs=dict(inputs)), build)
    assert output is not None
    return output


def held_model(store: FileStore) -> Reference:
    """A model that won in a channel without a champion, and waits."""
    model = made(store, "train", {"model.safetensors": "weights"})
    evaluation = made(store, "evaluate", {"summary.json": "{}"}, model=model)
    said = {"promote": True, "challenger": model.content_digest, "champion": None}
    verdict = made(store, "promote", {"verdict.json": json.dumps(said)}, challenger=evaluation)
    entry = Entry(
        model=model.reference,
        evaluation=evaluation.reference,
        verdict=verdict.reference,
        previous=None,
        compared_with=None,
        writing=None,
        sentence="Promoted.",
        held_at=utc_now(),
        expires_at=days_from(utc_now(), 1),
    )
    assert put(store, "dev", entry, lambda older: older is None)
    return model.reference


def test_its_run_makes_the_model_champion_with_the_signature(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    model = held_model(store)
    for wrong in ({"why": " "}, {"who": ""}):
        done = decided(store, **wrong)
        assert done.returncode == 64 and "is empty" in done.stderr, done.stderr
    assert decided(store, decision="perhaps").returncode == 64
    done = decided(store)
    assert done.returncode == 0, done.stderr
    (record,) = all_records(store, "dev")
    assert (record.model, record.who, record.why) == (model, "li", "reads well")
    said = (tmp_path / "outputs/result").read_text(encoding="utf-8")
    assert (
        said == f"train/{model.key[:12]} is champion of channel 'dev' (number 1), approved by li: reads well"
    )
    assert (tmp_path / "outputs/page").read_text(encoding="utf-8").strip() == said, (
        "its verdict has no report"
    )
    again = decided(store, decision="reject", model=f"train/{model.key}")
    assert again.returncode == 65 and "is served; take it down" in again.stderr


def test_an_empty_store_is_that_of_the_pipelines_own_runs(tmp_path: Path) -> None:
    """Where no Secret names a store, both keep to KFP's bucket: it is opened, here without credentials."""
    outputs = tmp_path / "outputs"
    words = command({**FORM, "store": ""}, outputs)
    words = [word.replace(str(outputs / "page"), "minio://mlpipeline/v2/x/page") for word in words]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("YANMO_", "AWS_"))}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == 78 and "no S3 credentials" in done.stderr, done.stderr
