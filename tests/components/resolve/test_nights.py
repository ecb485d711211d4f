"""What a run of a channel is told: which tokenizer, and whether it finishes an earlier run's training.

The stores are real, and so is every reader of options; the outputs are small files that stages' recipes name.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from yanmo.curate.config import CurateOptions
from yanmo.options.command_line import load
from yanmo.options.fields import by_kind
from yanmo.options.one_line import read_line
from yanmo.resolve.__main__ import main
from yanmo.stage.taken_down import digest_of
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import digest
from yanmo.store.output import Output
from yanmo.store.pointers import move_pointer
from yanmo.store.runs.run_record import note_night, read_night
from yanmo.store.runs.unfinished import (
    GIVEN_UP,
    LEFT,
    OUTDATED,
    TRAINED,
    Training,
    change_unfinished,
    read_unfinished,
)
from yanmo.tokenize.config import TokenizeConfig
from yanmo.train.config import STAGE as TRAIN
from yanmo.train.config import TrainConfig

STAGES = [f"--stages=yanmo.{name}.config" for name in ("curate", "balance", "tokenize", "train", "evaluate")]
DOWN = frozenset({"a" * 64})
Made = tuple[int, dict[str, str], dict[str, Any]]
"""Exit code, output parameters, and artifacts: the reference, or None."""


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
        names = ("vocab_size", "min_character_count", "character_share", "dictionary_weight", "byte_level")
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
        self, cache: Output, *flags: str, asked: str = "curate.sources=texts", **changed: Any
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
            note_night(self.store, "main", training.run_id, {"training": "new", "asked": asked})
        change_unfinished(self.store, "main", lambda record: record.with_(training))
        return training

    def run(self, *fields: str, others: str = "", run_id: str = "") -> Made:
        """One run's first task; `fields` are those of the form."""
        self.runs += 1
        folder = self.folder / f"kfp-{self.runs}"
        names = ("champion", "evaluation_set", "start_model", "tokenizer")
        parameters = ("options", "channel", "training", "training_pod_cpu", "training_pod_nodes")
        wanted = {
            "artifacts": {n: {"artifacts": [{"name": n, "uri": str(folder / n)}]} for n in names},
            "parameters": {n: {"outputFile": str(folder / f"{n}.txt")} for n in parameters},
            "outputFile": str(folder / "executor_output.json"),
        }
        form = ["--form=curate.sources=texts", *(f"--form={field}" for field in fields)]
        code = main(
            [
                f"--store={self.store.root}",
                "--channel=main",
                f"--run-id={run_id or f'night-{self.runs}'}",
                f"--executor-input={json.dumps({'outputs': wanted})}",
                *STAGES,
                *form,
                f"--others={others}",
            ]
        )
        if code:
            return code, {}, {}
        found = {n: (folder / f"{n}.txt").read_text(encoding="utf-8") for n in parameters}
        bodies = {n: (folder / n).read_text(encoding="utf-8") for n in names}
        return code, found, {n: None if b == "none\n" else json.loads(b) for n, b in bodies.items()}

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


def test_a_channel_keeps_its_tokenizer_until_another_vocabulary_is_asked_for(
    channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    assert channel.run()[2]["tokenizer"] is None, "a first run makes one"
    first = channel.tokenizer()
    move_pointer(channel.store, "main", "tokenizer", first.reference)
    assert channel.run()[2]["tokenizer"] == vars(first.reference)
    caplog.clear()
    assert channel.run("tokenize.vocab_size=4096")[2]["tokenizer"] is None
    assert f"{first}, the last run's, has vocab_size 8192, not 4096" in caplog.text
    assert channel.run(others="tokenize.user_dictionary=words.txt")[2]["tokenizer"] is None
    assert channel.run("resolve.use_tokenizer=new")[2]["tokenizer"] is None
    small = channel.tokenizer("small", vocab_size=4096)
    move_pointer(channel.store, "main", "tokenizer", small.reference)
    assert channel.run("tokenize.vocab_size=4096")[2]["tokenizer"] == vars(small.reference)
    assert channel.run()[2]["tokenizer"] is None, "the one of before is nobody's any more"


def test_the_champions_tokenizer_goes_before_the_last_runs(channel: Channel) -> None:
    """A challenger with another vocabulary lost: the next nights go on with the champion's."""
    cache = channel.cache()
    champion = channel.output("train", {"token_cache": cache})
    other = channel.tokenizer("of a challenger that lost")
    move_pointer(channel.store, "main", "champion", champion.reference)
    move_pointer(channel.store, "main", "tokenizer", other.reference)
    kept = vars(cache.part("tokenizer").reference)
    assert channel.run()[2]["tokenizer"] == kept
    assert channel.run("resolve.use_tokenizer=latest")[2]["tokenizer"] == vars(other.reference)
    changed = channel.run("tokenize.vocab_size=4096", "resolve.use_tokenizer=champion")
    assert changed[2]["tokenizer"] == kept, "who names it gets it"
    warm = channel.run("tokenize.vocab_size=4096", "resolve.start_from=champion")
    assert warm[2]["tokenizer"] == kept, "a model cannot go on with another one"
    imported = channel.output("tokenizer", {}, {"imported": True, "genres": []}, text="of Qwen")
    move_pointer(channel.store, "main", "tokenizer", imported.reference)
    assert channel.run("tokenize.vocab_size=4096")[2]["tokenizer"] == vars(imported.reference)


def test_an_unfinished_training_is_finished_first_with_what_it_began_with(
    channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    cache = channel.cache()
    asked = "curate.sources=texts train.steps=300 balance.quotas=alpha=0.5"
    training = channel.begun(cache, "--steps=300", asked=asked)
    code, found, artifacts = channel.run(
        "train.steps=900", "balance.quotas=alpha=0.7", others="train.max_seconds=60 train.log_every=3"
    )
    assert code == 0 and found["training"] == f"finish train/{training.key[:12]}"
    handed = read_line(found["options"])
    balance = cache.input("documents")
    assert balance is not None
    curate = balance.input("documents")
    assert curate is not None
    for stage, output in {"tokenize": cache, "balance": balance, "curate": curate}.items():
        assert json.loads(handed[stage]["take"]) == vars(output.reference)
    own = load(
        TrainConfig, [f"--{n.replace('_', '-')}={v}" for n, v in handed["train"].items()], "yanmo train"
    )
    assert by_kind(own, "semantic") == training.options
    assert (own.max_seconds, own.log_every) == (60, 3), "until when and how it trains is this run's"
    assert artifacts["tokenizer"] == vars(cache.part("tokenizer").reference)
    assert artifacts["start_model"] is None
    assert (
        "train.steps 300, now 900" in caplog.text and "balance.quotas alpha=0.5, now alpha=0.7" in caplog.text
    )
    assert "train_unfinished=leave" in caplog.text
    night = read_night(channel.store, "main", "night-1")
    assert night["training"] == "finish" and night["finishes"]["key"] == training.key
    assert night["finishes"]["step"] == 120


def test_a_training_is_left_by_a_word_and_taken_up_again_by_its_key(channel: Channel) -> None:
    training = channel.begun(channel.cache())
    assert channel.handed_on("resolve.unfinished=leave")[0] == "new"
    assert channel.states() == {training.key: LEFT}
    assert channel.handed_on()[0] == "new", "nobody finishes it by itself any more"
    name = f"train/{training.key[:8]}"
    assert channel.handed_on(f"resolve.unfinished={name}")[0] == f"finish train/{training.key[:12]}"
    assert channel.handed_on()[0] == f"finish train/{training.key[:12]}", "it is the channel's again"
    assert channel.run("resolve.unfinished=train/0000")[0] == 65
    assert channel.run("resolve.unfinished=again")[0] == 64


TEXTS: dict[str, Callable[[Channel], tuple[list[str], str]]] = {
    "a filter": lambda channel: (["curate.min_han_characters=20"], ""),
    "a filter off the form": lambda channel: ([], "curate.max_lacuna_share=0.5"),
    "other sources": lambda channel: (["curate.sources=poems"], ""),
    "benchmarks": lambda channel: ([], "curate.benchmarks=c3.jsonl"),
    "texts taken down": lambda channel: ([], f"curate.exclude={listed(channel, DOWN)}"),
    "a list that cannot be read": lambda channel: ([], "curate.exclude=nowhere.txt"),
}
SAME: dict[str, tuple[list[str], str]] = {
    "nothing": ([], ""),
    "more sources": (["curate.sources=texts,poems"], ""),
    "how it is worked": ([], "curate.workers=1"),
    "what is no text": (["tokenize.vocab_size=4096", "train.steps=7", "balance.quotas=*=100%"], ""),
}


def listed(channel: Channel, ids: frozenset[str]) -> Path:
    path = channel.folder / "down.txt"
    path.write_text("".join(f"{each}\n" for each in sorted(ids)))
    return path


@pytest.mark.parametrize("what", TEXTS)
def test_a_training_on_texts_that_are_no_longer_wanted_is_not_finished(
    channel: Channel, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    training = channel.begun(channel.cache())
    fields, others = TEXTS[what](channel)
    code, found, _ = channel.run(*fields, others=others)
    assert code == 0 and found["training"] == "new"
    assert channel.states() == {training.key: OUTDATED}
    assert f"train/{training.key[:12]}" in caplog.text and "is set aside and not finished" in caplog.text
    again = channel.run(*fields, f"resolve.unfinished=train/{training.key[:12]}", others=others)
    assert again[0] == 65, "nor by a word"


@pytest.mark.parametrize("what", SAME)
def test_a_training_is_finished_whatever_else_has_changed(channel: Channel, what: str) -> None:
    channel.begun(channel.cache())
    fields, others = SAME[what]
    assert channel.handed_on(*fields, others=others)[0].startswith("finish")


def test_a_list_of_texts_that_was_there_already_hinders_nothing(channel: Channel) -> None:
    path = listed(channel, DOWN)
    channel.begun(channel.cache(exclude=digest_of(DOWN)))
    assert channel.handed_on(others=f"curate.exclude={path}")[0].startswith("finish")
    listed(channel, DOWN | {"b" * 64})
    assert channel.handed_on(others=f"curate.exclude={path}")[0] == "new", "the same file, and more in it"


def test_where_the_record_of_the_run_that_began_it_is_gone_it_is_still_finished(channel: Channel) -> None:
    channel.begun(channel.cache(), asked="")
    assert channel.handed_on("curate.sources=elsewhere")[0].startswith("finish")
    assert channel.handed_on("curate.min_han_characters=20")[0] == "new", "its manifest tells the filters"


def test_what_cannot_be_finished_here_is_set_aside_and_the_next_one_is_taken(channel: Channel) -> None:
    lost = channel.begun(channel.cache("lost"))
    other = channel.begun(channel.cache("other"), revision=TRAIN.revision, key="f" * 64)
    good = channel.begun(channel.cache("good"))
    channel.store.delete(lost.inputs["token_cache"].manifest_uri)  # type: ignore[union-attr]
    assert channel.handed_on()[0] == f"finish train/{good.key[:12]}"
    assert channel.states() == {lost.key: OUTDATED, other.key: OUTDATED, good.key: "open"}


def test_settings_of_this_run_that_do_not_fit_give_way_to_those_that_it_began_with(
    channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    training = channel.begun(channel.cache(), "--batch-rows=32", "--ranks=2")
    about, handed = channel.handed_on(others="train.batch_rows=30 train.ranks=3 train.max_seconds=9")
    assert about == f"finish train/{training.key[:12]}"
    assert (handed["train"]["batch_rows"], handed["train"]["ranks"]) == ("32", "2")
    assert handed["train"]["max_seconds"] == "9"
    assert "do not fit the training that it finishes" in caplog.text


def test_a_trained_model_that_nobody_can_judge_is_given_up_after_three_runs(channel: Channel) -> None:
    training = channel.begun(channel.cache(), state=TRAINED)
    for _ in range(3):
        assert channel.handed_on()[0].startswith("finish")
    assert channel.handed_on()[0] == "new"
    assert channel.states() == {training.key: GIVEN_UP}


def test_a_pipeline_without_a_training_finishes_none(channel: Channel) -> None:
    training = channel.begun(channel.cache())
    flags = [f"--stages=yanmo.{name}.config" for name in ("curate", "balance", "tokenize")]
    wanted = {"outputFile": str(channel.folder / "out.json"), "parameters": {}, "artifacts": {}}
    code = main(
        [
            f"--store={channel.store.root}",
            "--channel=main",
            f"--executor-input={json.dumps({'outputs': wanted})}",
            *flags,
            "--form=curate.sources=texts",
        ]
    )
    assert code == 0 and channel.states() == {training.key: "open"}
