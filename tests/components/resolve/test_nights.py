"""What a run of a channel is told: which tokenizer, and whether it finishes an earlier run's training.

The stores are real, and so is every reader of options; the outputs are small files that stages' recipes name.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from yanmo.nights.index import rows_shown
from yanmo.options.command_line import load
from yanmo.options.fields import by_kind
from yanmo.options.one_line import read_line
from yanmo.promote.page.run_notes import left_alone
from yanmo.resolve.command import main
from yanmo.stage.excluded import digest_of
from yanmo.store.pointers import move_pointer
from yanmo.store.runs.run_record import add_to_run, read_night
from yanmo.store.runs.unfinished import (
    GIVEN_UP,
    LEFT,
    OUTDATED,
    TRAINED,
    change_unfinished,
    read_unfinished,
)
from yanmo.train.config import STAGE as TRAIN
from yanmo.train.config import TrainConfig

Channel = Any
"""The one of conftest.py."""
DOWN = frozenset({"a" * 64})


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
    assert "has user_dictionary none, not words.txt" in caplog.text
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
    asked = "curate.sources=texts train.steps=300 balance.quotas=size^0.5"
    training = channel.begun(cache, "--steps=300", asked=asked)
    code, found, artifacts = channel.run(
        "train.steps=900", "balance.quotas=size^0.7", others="train.max_seconds=60 train.log_every=3"
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
        "train.steps 300, now 900" in caplog.text and "balance.quotas size^0.5, now size^0.7" in caplog.text
    )
    assert "train_unfinished=start-new" in caplog.text
    night = read_night(channel.store, "main", "night-1")
    assert night["training"] == "finish" and night["finishes"]["key"] == training.key
    assert night["finishes"]["step"] == 120


def test_a_training_is_left_by_a_word_and_taken_up_again_by_its_key(
    channel: Channel, capsys: pytest.CaptureFixture[str]
) -> None:
    channel.cache()
    assert channel.run("resolve.unfinished=train/0000")[0] == 65
    assert "there are: none" in capsys.readouterr().err
    training = channel.begun(channel.cache())
    assert channel.handed_on("resolve.unfinished=start-new")[0] == "new"
    assert channel.states() == {training.key: LEFT}
    assert channel.handed_on()[0] == "new", "nobody finishes it by itself any more"
    name = f"train/{training.key[:8]}"
    assert channel.handed_on(f"resolve.unfinished={name}")[0] == f"finish train/{training.key[:12]}"
    assert channel.handed_on()[0] == f"finish train/{training.key[:12]}", "it is the channel's again"
    assert channel.run("resolve.unfinished=train/0000")[0] == 65
    assert f"there are: train/{training.key[:12]}, open" in capsys.readouterr().err
    assert channel.run("resolve.unfinished=again")[0] == 64


def test_a_form_that_names_a_training_may_stay_as_it_is_after_that_is_judged(
    channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    """A schedule's form."""
    judged = channel.output("train", {"token_cache": channel.cache()})
    name = f"resolve.unfinished=train/{judged.manifest.key[:12]}"
    assert channel.handed_on(name)[0] == "new"
    assert f"{judged} is finished already" in caplog.text
    waits = channel.begun(channel.cache("more"))
    assert channel.handed_on(name)[0] == f"finish train/{waits.key[:12]}", "as with finish"


def test_a_form_that_names_a_training_forgets_its_tries_only_where_it_was_set_aside(
    channel: Channel,
) -> None:
    """Else a schedule whose form names one would try it for ever."""
    begun = channel.begun(channel.cache())
    tried = begun.tried("a", "step-00000120").tried("b", "step-00000120")
    name = f"resolve.unfinished=train/{begun.key[:8]}"
    for state, left in (("open", 2), (GIVEN_UP, 0), (LEFT, 0)):
        one = dataclasses.replace(tried, state=state, why="")
        change_unfinished(channel.store, "main", lambda record, one=one: record.with_(one))
        assert channel.handed_on(name)[0].startswith("finish")
        (now,) = read_unfinished(channel.store, "main").open
        assert len(now.tries) == left


TEXTS: dict[str, Callable[[Channel], tuple[list[str], str]]] = {
    "a filter": lambda channel: (["curate.min_han_characters=20"], ""),
    "a filter off the form": lambda channel: ([], "curate.filter_limits=lacuna=0.5"),
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
    assert channel.states() == {training.key: OUTDATED}, "which changes nothing"


def test_a_filter_that_changed_no_text_before_a_training_was_begun_does_not_set_it_aside(
    channel: Channel,
) -> None:
    """Same texts, same key: the data behind it are those of an earlier run, which had the other filter."""
    cache = channel.cache()
    curate = cache.input("documents").input("documents")
    again = channel.output(
        "curate",
        curate.manifest.inputs,
        {**curate.manifest.options, "min_han_characters": 20},
        text=curate.path("file").read_text(encoding="utf-8"),
    )
    assert again.content_digest == curate.content_digest and again.manifest.key != curate.manifest.key
    field = "curate.min_han_characters=20"
    training = channel.begun(cache, asked=f"curate.sources=texts {field}")
    add_to_run(channel.store, "main", training.run_id, {"curate": again.reference})
    assert channel.handed_on(field)[0] == f"finish train/{training.key[:12]}"
    assert channel.handed_on()[0] == "new", "it was begun with the filter, which is gone"


@pytest.mark.parametrize("what", SAME)
def test_a_training_is_finished_whatever_else_has_changed(channel: Channel, what: str) -> None:
    channel.begun(channel.cache())
    fields, others = SAME[what]
    assert channel.handed_on(*fields, others=others)[0].startswith("finish")


def test_what_was_left_to_the_texts_then_and_is_now_hinders_nothing(channel: Channel) -> None:
    cache = channel.cache(text_form="modern-1")
    channel.begun(cache)
    assert channel.handed_on()[0].startswith("finish")
    channel.begun(cache, asked="curate.sources=texts curate.text_form=modern-1")
    assert channel.handed_on()[0] == "new", "it was the form's word, and is no more"


def test_a_list_of_texts_that_was_there_already_hinders_nothing(channel: Channel) -> None:
    path = listed(channel, DOWN)
    channel.begun(channel.cache(exclude=digest_of(DOWN)))
    assert channel.handed_on(others=f"curate.exclude={path}")[0].startswith("finish")
    listed(channel, DOWN | {"b" * 64})
    assert channel.handed_on(others=f"curate.exclude={path}")[0] == "new", "the same file, and more in it"


def test_where_the_record_of_the_run_that_began_it_is_gone_its_key_finishes_it(channel: Channel) -> None:
    begun = channel.begun(channel.cache(), asked="")
    assert channel.handed_on()[0] == "new", "nobody knows whose it is"
    key = f"resolve.unfinished={begun.name}"
    assert channel.handed_on(key, "curate.sources=elsewhere")[0].startswith("finish")
    assert channel.run(key, "curate.min_han_characters=20")[0] == 65, "its manifest tells the filters"


ASKED = "curate.sources=texts train.steps=300"


@pytest.mark.parametrize(
    ("fields", "others", "schedule", "is_finished"),
    [
        (["train.steps=300"], "", "", True),
        (["train.steps=300"], "train.max_seconds=60", "", True),
        (["train.steps=900"], "", "", False),
        (["train.steps=300", "balance.quotas=size^0.5"], "", "", False),
        (["train.steps=900"], "", "nightly", True),
        (["train.steps=900"], "", "weekly", False),
        (["train.steps=300"], "", "weekly", True),
    ],
)
def test_a_run_finishes_what_the_same_form_or_its_own_schedule_began(
    channel: Channel,
    fields: list[str],
    others: str,
    schedule: str,
    is_finished: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else Start would train what somebody else's form says, once for each run that was left."""
    begun = channel.begun(channel.cache(), "--steps=300", asked=ASKED)
    code, found, _ = channel.run(*fields, others=others, schedule=schedule)
    assert code == 0 and channel.states() == {begun.key: "open"}
    assert found["training"] == (f"finish {begun.name}" if is_finished else "new")
    left = read_night(channel.store, "main", "night-1")["left_alone"]
    assert ("is left alone" in caplog.text) is not is_finished
    assert [one["field"] for one in left] == ([] if is_finished else [f"train_unfinished={begun.name}"])
    words = left_alone(read_night(channel.store, "main", "night-1"))
    assert (words is None) == is_finished and (words is None or begun.name in words.en)


def test_what_a_job_of_one_stage_left_is_nobodys_unfinished_night(channel: Channel) -> None:
    """Its run has no form: `kubectl create job --from=cronjob/stage-train`."""
    begun = channel.begun(channel.cache(), asked="", schedule="")
    for schedule in ("", "nightly"):
        assert channel.run(schedule=schedule)[1]["training"] == "new"
    assert channel.states() == {begun.key: "open"}


def test_a_form_that_starts_anew_sets_aside_its_own_and_no_schedules(channel: Channel) -> None:
    of_night = channel.begun(channel.cache(), "--steps=300", asked=ASKED)
    own = channel.begun(channel.cache("own"), schedule="")
    assert channel.run("resolve.unfinished=start-new", schedule="")[1]["training"] == "new"
    assert channel.states() == {of_night.key: "open", own.key: LEFT}


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


def test_a_night_that_fails_at_its_begin_is_on_the_index(channel: Channel) -> None:
    channel.cache()
    assert channel.run("resolve.unfinished=train/0000", run_id="night-7")[0] == 65
    [row] = rows_shown(channel.store, "main")
    assert (row.run_id, row.state) == ("night-7", "failed") and "train/0000" in row.sentence.en


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
