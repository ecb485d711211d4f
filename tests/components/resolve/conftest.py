"""A store with a channel, and the first task of runs as a pipeline makes them, read by the real readers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from yanmo.curate.config import CurateOptions
from yanmo.options.command_line import load
from yanmo.options.fields import by_kind
from yanmo.options.one_line import read_line
from yanmo.resolve.command import main
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import digest
from yanmo.store.output import Output
from yanmo.store.runs.run_record import RUN, note_night, run_record_name
from yanmo.store.runs.unfinished import (
    Training,
    change_unfinished,
    read_unfinished,
)
from yanmo.tokenize.config import TokenizeConfig
from yanmo.train.config import STAGE as TRAIN
from yanmo.train.config import TrainConfig

PIPELINE = "resolve curate balance tokenize train evaluate"
STAGES = [f"--stages=yanmo.{name}.config" for name in ("curate", "balance", "tokenize", "train", "evaluate")]
Made = tuple[int, dict[str, str], dict[str, Any]]
"""Exit code, output parameters, and what it pinned: the reference, or None."""


class Channel:
    """A store with a channel, and runs of `resolve` as a pipeline makes them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, FileStore(folder / "store")
        self.runs = 0

    def output(
        self,
        stage: str,
        inputs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        references: Mapping[str, Output] | None = None,
        revision: int = 1,
        text: str = "",
    ) -> Output:
        def build(attempt: Attempt) -> Result:
            attempt.write("file", text or stage)
            return Result(counts={}, references=dict(references or {}))

        recipe = Recipe(
            stage=stage, revision=revision, semantic=dict(options or {}), inputs=dict(inputs or {})
        )
        made = commit_once(self.store, recipe, build)
        assert made is not None
        return made

    def tokenizer(self, text: str = "tokenizer", **options: object) -> Output:
        config = load(TokenizeConfig, [], "yanmo tokenize")
        names = ("vocab_size", "min_character_count", "dictionary_weight")
        semantic = {name: getattr(config, name) for name in names} | options
        return self.output("tokenizer", {}, semantic, text=text)

    def cache(self, text: str = "", exclude: str = "", **curated: object) -> Output:
        """A token cache by way of curate and balance, as the form's defaults make them."""
        semantic = by_kind(load(CurateOptions, ["--sources=texts"], "yanmo curate"), "semantic") | curated
        inputs = {"sources": {"content_digest": digest(text), "uri": "texts"}}
        inputs |= {"exclude": {"content_digest": exclude, "uri": "ids.txt"}} if exclude else {}
        curate = self.output("curate", inputs, semantic, text=f"documents {text}")
        balance = self.output("balance", {"documents": curate}, text=f"balanced {text}")
        parts = {"tokenizer": self.tokenizer()}
        return self.output("tokenize", {"documents": balance}, references=parts, text=f"tokens {text}")

    def begun(
        self,
        cache: Output,
        *flags: str,
        asked: str = "curate.sources=texts",
        schedule: str = "nightly",
        **changed: Any,
    ) -> Training:
        """A training that a run began and did not finish."""
        options = load(TrainConfig, list(flags), "yanmo train")
        semantic = by_kind(options, "semantic")
        recipe = Recipe(
            stage="train", revision=TRAIN.revision, semantic=semantic, inputs={"token_cache": cache}
        )
        training = Training(
            key=recipe.key,
            revision=TRAIN.revision,
            options=semantic,
            execution=by_kind(options, "execution"),
            inputs={"token_cache": cache.reference, "model": None},
            run_id=f"began-{recipe.key[:6]}",
            checkpoint="step-00000120",
        )
        training = dataclasses.replace(training, **changed)
        if asked:
            said = {"training": "new", "asked": asked, "schedule": schedule, "pipeline": PIPELINE}
            note_night(self.store, "main", training.run_id, said)
        change_unfinished(self.store, "main", lambda record: record.with_(training))
        return training

    def run(self, *fields: str, others: str = "", run_id: str = "", schedule: str = "nightly") -> Made:
        """One run's first task; `fields` are those of the form."""
        others += f" resolve.schedule={schedule}" if schedule else ""
        self.runs += 1
        folder = self.folder / f"kfp-{self.runs}"
        run_id = run_id or f"night-{self.runs}"
        parameters = ("options", "pinned", "training", "training_pod_cpu", "training_pod_nodes")
        wanted = {
            "parameters": {n: {"outputFile": str(folder / f"{n}.txt")} for n in parameters},
            "outputFile": str(folder / "executor_output.json"),
        }
        form = ["--form=curate.sources=texts", *(f"--form={field}" for field in fields)]
        code = main(
            [
                f"--store={self.store.root}",
                "--channel=main",
                f"--run-id={run_id}",
                f"--executor-input={json.dumps({'outputs': wanted})}",
                *STAGES,
                *form,
                f"--others={others}",
            ]
        )
        if code:
            return code, {}, {}
        found = {n: (folder / f"{n}.txt").read_text(encoding="utf-8") for n in parameters}
        left = RUN.read(self.store, run_record_name("main", run_id))
        assert left is not None and left.options == found["options"]
        return code, found, {name: one and vars(one) for name, one in left.pinned.items()}

    def handed_on(self, *fields: str, others: str = "") -> tuple[str, dict[str, dict[str, str]]]:
        """What the run is about, and the options that its stages get."""
        code, found, _ = self.run(*fields, others=others)
        assert code == 0
        return found["training"], read_line(found["options"])

    def states(self) -> dict[str, str]:
        return {one.key: one.state for one in read_unfinished(self.store, "main").trainings}


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    return Channel(tmp_path)


@pytest.fixture(scope="session")
def channel_in() -> type[Channel]:
    """Makes more of them, each in its folder."""
    return Channel
