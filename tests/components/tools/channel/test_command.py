"""`yanmo channel unfinished`: what is shown, taken up again and left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from yanmo.store.file_store import FileStore
from yanmo.store.runs.unfinished import (
    GIVEN_UP,
    LEFT,
    OPEN,
    TRAINED,
    Training,
    change_unfinished,
    read_unfinished,
    unfinished_name,
)
from yanmo.tools.channel.command import main


def training(digit: str, state: str = OPEN, why: str = "") -> Training:
    made = Training(
        key=digit * 64,
        revision=1,
        options={},
        execution={},
        inputs={},
        run_id="night-1",
        state=state,
        why=why,
    )
    return made.tried("night-1", "").tried("night-2", "")


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    """A channel that gave one up, left one, and has one to finish."""
    store = FileStore(tmp_path)
    for one in (training("a", GIVEN_UP, "3 runs in a row"), training("b"), training("c", LEFT, "left by li")):
        change_unfinished(store, "main", lambda record, one=one: record.with_(one))
    return store


def said(store: FileStore, *words: str) -> int:
    return main(["unfinished", f"--store={store.root}", "--channel=main", *words])


def test_all_are_shown_with_why_and_which_one_the_next_run_finishes(
    store: FileStore, capsys: pytest.CaptureFixture[str]
) -> None:
    before = store.read(unfinished_name("main"))
    assert said(store) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:9].strip() for line in lines] == ["given up", "", "open", "left", "", "the next"]
    assert lines[1].strip() == "3 runs in a row" and lines[4].strip() == "left by li"
    assert lines[5] == "the next run of channel main finishes train/bbbbbbbbbbbb first"
    assert said(store, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["key"][0] for one in shown["trainings"]] == ["a", "b", "c"]
    assert store.read(unfinished_name("main")) == before, "to look changes nothing"
    assert main(["unfinished", f"--store={store.root}", "--channel=other"]) == 0
    assert "channel other of file://" in capsys.readouterr().out
    assert store.stat(unfinished_name("other")) is None


@pytest.mark.parametrize("digit", ["a", "b", "c"])
def test_one_that_is_resumed_is_first_and_counts_from_none(store: FileStore, digit: str) -> None:
    assert said(store, "--resume", f"train/{digit * 6}") == 0
    first = read_unfinished(store, "main").open[0]
    assert (first.key[0], first.state, first.tries, first.why) == (digit, OPEN, (), "")


def test_one_that_only_lacks_its_verdict_stays_so(store: FileStore) -> None:
    change_unfinished(store, "main", lambda record: record.with_(training("d", TRAINED)))
    assert said(store, "--resume", "train/dddd") == 0
    assert read_unfinished(store, "main").open[0].state == TRAINED


def test_one_that_is_left_says_by_whom(store: FileStore) -> None:
    assert said(store, "--leave", "train/bbbb", "--who", "wang") == 0
    record = read_unfinished(store, "main")
    assert record.open == []
    found = record.named("train/bbbb")
    assert found is not None and (found.state, found.why) == (LEFT, "left by wang")


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("--resume", "train/eeee"), 65, "there are: train/aaaaaaaaaaaa, given up, train/bbbbbbbbbbbb, open"),
        (("--resume", "aaaa"), 64, "--resume aaaa: expected train/KEY; the first 4 digits are enough"),
        (("--leave", "train/aaa"), 64, "--leave train/aaa: expected train/KEY"),
        (("--leave", "train/aaaa", "--resume", "train/aaaa"), 64, "expected one of them"),
    ],
)
def test_what_names_no_training_is_refused_and_nothing_is_changed(
    store: FileStore, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, why: str
) -> None:
    before = store.read(unfinished_name("main"))
    assert said(store, *words) == code
    assert why in capsys.readouterr().err
    assert store.read(unfinished_name("main")) == before
