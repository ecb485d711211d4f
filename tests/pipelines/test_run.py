"""`yanmo run` over several nights of a channel: what is given up, taken up again, and gone on with."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_road import ALL, ENV, SETTINGS, committed_in, stages_of, write_text

from yanmo.nights.index import rows_shown
from yanmo.store.file_store import FileStore
from yanmo.store.runs.failure_card import read_card
from yanmo.store.runs.unfinished import read_unfinished

TOO_LITTLE = "train.memory_gib=0.001"
"""A machine that cannot hold the model, whatever this one has."""


def yanmo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "yanmo.cli", *words]
    environment = {**ENV, "YANMO_STORE": str(folder / "store"), "YANMO_CHANNEL": "demo"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def night(folder: Path, options: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """One `yanmo run` of the form that the channel's schedule has."""
    settings = {"data_sources": "data", **SETTINGS, "options": f"{SETTINGS['options']} {options}".strip()}
    return yanmo(folder, "run", *flags, *(f"--set={name}={value}" for name, value in settings.items()))


def field_in(text: str) -> str:
    """The field of the form that takes the training up again."""
    found = re.search(r"train_unfinished=train/\w{12}", text)
    assert found, text
    return found[0]


@pytest.mark.road
def test_what_three_nights_could_not_train_is_given_up_and_finished_once_a_person_says_so(
    tmp_path: Path,
) -> None:
    """And the same command once more trains on what has come meanwhile."""
    (tmp_path / "data").mkdir()
    write_text(tmp_path / "data/first.jsonl", 120)
    nights = [night(tmp_path, TOO_LITTLE) for _ in range(3)]
    assert [one.returncode for one in nights] == [78] * 3, nights[-1].stderr[-3000:]
    assert [stages_of(one) for one in nights] == [ALL[:3], [], []]
    assert ["is given up" in one.stderr for one in nights] == [False, False, True]
    field = field_in(nights[-1].stderr)
    assert_loud(tmp_path, field)
    named = field.partition("=")[2]
    write_text(tmp_path / "data/second.jsonl", 10, after=120)
    last = night(tmp_path, "", f"--set={field}")
    assert last.returncode == 0, last.stderr[-3000:]
    assert committed_in(last.stderr)[0] == ("train", named)
    assert [stage for stage, _ in committed_in(last.stderr)][-1] == "promote"
    (record,) = (tmp_path / "store/pointers/demo/history").glob("000*1*.json")
    assert f"train/{json.loads(record.read_text())['model']['key']}".startswith(named)
    assert "Promoted: it is the channel's first champion." in last.stdout
    more = night(tmp_path, "")
    assert more.returncode == 0, more.stderr[-3000:]
    assert {stage for stage, _ in committed_in(more.stderr)} == set(ALL)


def assert_loud(folder: Path, field: str) -> None:
    """On the card, the index and by `yanmo status`."""
    store = FileStore(folder / "store")
    (training,) = read_unfinished(store, "demo").set_aside
    assert "is given up" in (card := read_card(store, "train", training.key).why) and field in card
    row = rows_shown(store, "demo")[0]
    assert row.state == "given up" and "is given up: 3 runs in a row came no further" in row.sentence.en
    assert "given up" in html.unescape(store.read("nights/demo/index.html")[0].decode())
    told = yanmo(folder, "status")
    assert told.returncode == 0
    assert f"given up   {training.name}" in told.stdout and field in told.stdout, told.stdout
