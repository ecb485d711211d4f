"""`yanmo promote set`: a judged model becomes champion by hand, with a reason, by compare-and-swap."""

from __future__ import annotations

import pytest

from yanmo.promote.history.champion import ChampionChanged
from yanmo.promote.history.setting import plan_set, set_champion
from yanmo.store.champion_records import all_records

SIGNED = ("--why", "reads well", "--who", "li", "--yes")


@pytest.fixture
def held(stage):
    """A champion, and a better model that --hold kept waiting."""
    stage.evaluate(stage.model(1), 8.0)
    assert stage.promote() == 0
    better = stage.model(2)
    stage.evaluate(better, 7.8)
    assert stage.promote("--hold") == 0
    return better


def test_a_held_winner_is_approved_and_the_history_says_by_whom(stage, held, capsys):
    before = stage.pointer("champion")
    assert before != held.reference, "--hold leaves the pointer"
    assert stage.tool("set", f"train/{held.reference.key[:8]}", *SIGNED) == 0
    said = capsys.readouterr().out
    assert "says of train/" in said and "Promoted" in said and "(number 2)" in said
    assert ": Held: it won, by " in said and "waits for a person. " in said
    assert [line.partition(":")[0] for line in said.splitlines() if "Promoted" in line] == ["Promoted"]
    assert stage.pointer("champion") == held.reference
    last = all_records(stage.store, "dev")[-1]
    assert (last.number, last.kind, last.who, last.why) == (2, "promotion", "li", "reads well")
    assert last.previous == before and last.compared_with is not None
    assert stage.tool("history") == 0
    assert "set by li: reads well" in capsys.readouterr().out
    assert stage.tool("rollback", "--why", "worse in use", "--yes") == 0
    assert stage.pointer("champion") == before


def test_a_model_that_lost_may_be_set_and_it_is_said(stage, held, capsys):
    worse = stage.model(3)
    stage.evaluate(worse, 9.0)
    assert stage.promote() == 0
    verdict = stage.pointer("promote").key
    assert stage.tool("set", f"promote/{verdict[:10]}", *SIGNED) == 0
    assert "Not promoted" in capsys.readouterr().out
    assert stage.pointer("champion") == worse.reference


@pytest.mark.parametrize(
    ("what", "more", "code", "said"),
    [
        ("evaluate/abcdef", SIGNED, 64, "expected train/KEY of a model that was judged"),
        ("ab", SIGNED, 64, "expected train/KEY"),
        ("abcdef0123", SIGNED, 65, "no such output"),
        ("HELD", ("--why", "x"), 64, "nobody to ask"),
    ],
)
def test_what_is_unclear_is_refused_and_moves_nothing(stage, held, caplog, what, more, code, said):
    before = stage.pointer("champion")
    assert stage.tool("set", held.reference.key if what == "HELD" else what, *more) == code
    assert said in caplog.text and stage.pointer("champion") == before


def test_a_model_that_was_never_judged_is_refused(stage, held, caplog):
    assert stage.tool("set", f"train/{stage.model(7).reference.key}", *SIGNED) == 65
    assert "was never judged" in caplog.text and "yanmo promote --hold" in caplog.text
    assert caplog.text.count(f"--store {stage.store.uri} --channel dev`") == 2


def test_a_damaged_model_is_not_set(stage, held, caplog):
    before = stage.pointer("champion")
    (held.store.root / held.wanted(held.entries("*")[0]).name).write_bytes(b"torn")
    assert stage.tool("set", held.reference.key, *SIGNED) == 65
    assert "damaged" in caplog.text and stage.pointer("champion") == before


def test_a_champion_that_moved_meanwhile_stays(stage, held):
    plan = plan_set(stage.store, "dev", held.reference.key)
    other = stage.model(3)
    stage.evaluate(other, 7.9)
    assert stage.promote() == 0
    assert "It was not compared with the champion of now, train/" in str(
        plan_set(stage.store, "dev", held.reference.key)
    )
    assert "Held" not in str(plan_set(stage.store, "dev", other.reference.key)), "it was promoted by a run"
    with pytest.raises(ChampionChanged, match="got another champion meanwhile"):
        set_champion(stage.store, plan, who="li", why="x")
    assert stage.pointer("champion") == other.reference and len(all_records(stage.store, "dev")) == 2


def test_a_model_that_was_taken_down_is_brought_back_by_a_rollback_alone(stage, held, caplog):
    assert stage.tool("set", held.reference.key, *SIGNED) == 0
    assert stage.tool("rollback", "--why", "rude", "--yes") == 0
    assert stage.tool("set", held.reference.key, *SIGNED) == 75
    assert "was taken down" in caplog.text and "yanmo promote rollback --to NUMBER" in caplog.text
    assert stage.pointer("champion") != held.reference


def test_the_same_command_again_changes_nothing(stage, held):
    assert stage.tool("set", held.reference.key, *SIGNED) == 0
    records = all_records(stage.store, "dev")
    assert stage.tool("set", held.reference.key, "--why", "again", "--yes") == 0
    assert all_records(stage.store, "dev") == records
