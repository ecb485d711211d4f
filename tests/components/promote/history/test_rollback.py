"""`yanmo promote rollback` and `history`: what they do, what they refuse, and what a kill leaves behind."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time

import pytest
from processes import fields_of

from yanmo.store.champion_records import all_records
from yanmo.store.output import open_reference

WHY = ("--why", "writes rude verses", "--who", "li", "--yes")


@pytest.fixture(scope="module")
def made(new_stage):
    """The store of `three`, which each test gets a copy of."""
    stage = new_stage()
    for number in (1, 2, 3):
        stage.evaluate(stage.model(number), 9 - number / 5)
        assert stage.promote() == 0
    return stage


@pytest.fixture
def three(stage, made):
    """A channel with three champions, one after the other; their models."""
    shutil.copytree(made.folder, stage.folder, dirs_exist_ok=True)
    return [open_reference(stage.store, one.model) for one in all_records(stage.store, "dev")]


def current_champion(stage):
    return stage.pointer("champion").key


def test_a_rollback_brings_the_champion_before_back_and_says_who_and_why(stage, three, capsys):
    assert stage.tool("rollback", *WHY) == 0
    assert current_champion(stage) == three[1].reference.key
    record = all_records(stage.store, "dev")[-1]
    assert (record.number, record.kind, record.restores) == (4, "rollback", 2)
    assert (record.who, record.why) == ("li", "writes rude verses")
    assert record.previous.key == three[2].reference.key
    said = capsys.readouterr().out
    assert f"train/{three[2].reference.key[:12]} is champion of channel 'dev'; it will be" in said
    assert f"train/{three[1].reference.key[:12]} (number 2, champion since 20" in said


def test_a_model_that_was_rolled_back_is_not_promoted_again_by_the_next_night(stage, three, caplog):
    stage.tool("rollback", *WHY)
    assert stage.promote() == 0
    assert current_champion(stage) == three[1].reference.key
    assert "This model was taken down before: rolled back 20" in caplog.text
    assert "by li: writes rude verses" in stage.verdict()["sentence"]["en"]
    better = stage.model(4)
    stage.evaluate(better, 8.0)
    assert stage.promote() == 0
    assert current_champion(stage) == better.reference.key
    assert [one.who for one in all_records(stage.store, "dev")[-1].rolled_back] == ["li"], "still rolled back"


def test_rolling_back_to_a_model_that_was_rolled_back_lets_it_be_promoted(stage, three):
    stage.tool("rollback", *WHY)
    assert stage.tool("rollback", "--to", "3", *WHY) == 0
    assert current_champion(stage) == three[2].reference.key
    (one,) = all_records(stage.store, "dev")[-1].rolled_back
    assert one.model == three[1].content_digest


def test_two_rollbacks_go_back_two_champions(stage, three):
    assert stage.tool("rollback", *WHY) == 0
    assert stage.tool("rollback", *WHY) == 0
    assert current_champion(stage) == three[0].reference.key
    assert stage.tool("rollback", *WHY) == 65, "there is none before the first"
    assert current_champion(stage) == three[0].reference.key


def test_a_dry_run_says_what_would_happen_and_moves_nothing(stage, three, capsys):
    assert stage.tool("rollback", "--dry-run", "--why", "a look") == 0
    assert "it will be train/" in capsys.readouterr().out
    assert current_champion(stage) == three[2].reference.key and len(stage.records()) == 3


def test_a_former_champion_with_damaged_files_is_not_brought_back(stage, three, caplog):
    manifest = three[1].manifest
    (stage.folder / f"cas/train/{manifest.key}/{manifest.attempt}/model.safetensors").write_text("WEIGHTS 9")
    assert stage.tool("rollback", *WHY) == 65
    assert "model.safetensors: changed since it was committed" in caplog.text
    assert current_champion(stage) == three[2].reference.key and len(stage.records()) == 3
    assert stage.tool("rollback", "--to", "1", *WHY) == 0
    assert current_champion(stage) == three[0].reference.key


def test_a_damaged_champion_can_be_taken_down(stage, three):
    manifest = three[2].manifest
    (stage.folder / f"cas/train/{manifest.key}/{manifest.attempt}/model.safetensors").unlink()
    assert stage.tool("rollback", *WHY) == 0
    assert current_champion(stage) == three[1].reference.key


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--to", "9", *WHY), 65, "has the numbers 1 to 3; give one of them"),
        (("--to", "-1", *WHY), 65, "has the numbers 1 to 3"),
        (("--to", "3", *WHY), 65, "is the champion of channel 'dev' already"),
        (("--channel", "empty", *WHY), 65, "has no champion to roll back"),
        (("--channel", "../dev", *WHY), 64, "--channel '../dev'"),
        (("--why", " ", "--yes"), 64, "--why is empty"),
        (("--yes",), 64, "--why"),
        (("--why", "because"), 64, "nobody to ask"),
    ],
)
def test_what_cannot_be_done_is_refused_and_moves_nothing(stage, three, caplog, arguments, code, words):
    assert stage.tool("rollback", *arguments) == code
    assert words in caplog.text
    assert current_champion(stage) == three[2].reference.key and len(stage.records()) == 3


@pytest.mark.parametrize(("answer", "rolled"), [("y", True), ("", False), ("n", False)])
def test_a_person_is_asked_first(stage, three, monkeypatch, answer, rolled):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt: answer)
    assert stage.tool("rollback", "--why", "because") == 0
    assert (current_champion(stage) == three[1].reference.key) is rolled


def test_sigterm_before_the_swap_ends_a_rollback_orderly_and_moves_nothing(stage, three):
    ours, theirs = pty.openpty()  # a person is asked: the process waits for the answer
    asked = [sys.executable, "-m", "yanmo.promote", "rollback", "--store", str(stage.folder), "--why=rude"]
    process = subprocess.Popen(asked, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        said = more = b"it began"
        while more and b"Go on?" not in said:
            more = os.read(process.stdout.fileno(), 4096)
            said += more
        # Python sees a signal that comes between its last look and the read only when the read ends.
        while fields_of(process.pid)[:1] == ["R"]:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    finally:
        process.kill()
        complaints = process.communicate()[1]
        os.close(ours), os.close(theirs)
    assert b"Traceback" not in complaints
    assert current_champion(stage) == three[2].reference.key and len(stage.records()) == 3
    assert stage.tool("rollback", *WHY) == 0, "the same command does it"
    assert current_champion(stage) == three[1].reference.key


def test_the_history_lists_every_champion(stage, three, capsys):
    stage.tool("rollback", *WHY)
    capsys.readouterr()
    assert stage.tool("history") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["number", "since", "(UTC)", "champion", "bits", "how"]
    assert [line.split()[0] for line in lines[1:5]] == ["1", "2", "3", "4"]
    assert "rollback to 2 by li: writes rude verses" in lines[4]
    assert f"champion: train/{three[1].reference.key[:12]}" in lines
    assert any(line.startswith(f"rolled back: train/{three[2].reference.key[:12]}, 20") for line in lines)
    assert stage.tool("history", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [r["kind"] for r in document["records"]] == ["promotion"] * 3 + ["rollback"]
    assert stage.tool("history", "--channel", "empty") == 0
    assert "has no champion yet" in capsys.readouterr().out


@pytest.mark.parametrize("mended_by", ["promote", "rollback"])
def test_a_lost_pointer_comes_back_and_promotes_nobody_unseen(stage, three, capsys, mended_by):
    before = stage.pointer("champion")
    stage.store.delete("pointers/dev/champion.json")
    stage.evaluate(stage.model(9), 9.9)
    assert stage.tool("history") == 0 and "The pointer champion names none" in capsys.readouterr().out
    if mended_by == "promote":
        assert stage.promote() == 0 and "no better than the champion" in stage.verdict()["sentence"]["en"]
    else:
        assert stage.tool("rollback", "--why", "pointer lost", "--yes") == 0
    assert stage.pointer("champion") == before and len(stage.records()) == 3


@pytest.mark.parametrize("harm", ["exchanged", "{}", "cut"])
def test_what_the_message_of_a_damaged_champion_advises_brings_it_back(stage, three, caplog, harm):
    path = stage.folder / "pointers/dev/champion.json"
    whole = path.read_text()
    other = stage.pointer("promote").to_json()
    path.write_text({"exchanged": other, "{}": "{}", "cut": whole[:-80]}[harm])
    assert stage.promote() == stage.tool("history") == 65
    assert "delete the file: `yanmo promote rollback --why damaged`, with --store and" in caplog.text
    path.unlink()
    assert stage.tool("rollback", "--why", "damaged", "--yes") == 0
    assert json.loads(path.read_text())["content_digest"] == json.loads(whole)["content_digest"]
    assert stage.tool("history") == 0


def test_a_record_missing_between_others_is_found(stage, three, caplog):
    """It may have said who was taken down."""
    stage.records()[1].unlink()
    stage.evaluate(stage.model(9), 5.0)
    assert stage.promote() == 65
    assert "history/000002.json: a record of a champion is missing between others" in caplog.text


def test_a_pointer_that_was_restored_by_hand_can_be_replaced(stage, three):
    path = stage.folder / "pointers/dev/champion.json"
    path.write_text(json.dumps(json.loads(path.read_text())))  # the same reference, other white space
    better = stage.model(9)
    stage.evaluate(better, 5.0)
    assert stage.promote() == 0
    assert stage.pointer("champion").key == better.reference.key


def test_a_dry_run_says_what_a_run_would_say_of_a_rolled_back_model(stage, three, caplog):
    taken = all_records(stage.store, "dev")[-1].evaluation
    assert stage.tool("rollback", "--why", "rude", "--yes") == 0
    caplog.clear()
    assert stage.promote("--dry-run", "--challenger", f"evaluate/{taken.key}") == 0
    assert "dry run, nothing moved. Not promoted: this model was taken down before" in caplog.text
