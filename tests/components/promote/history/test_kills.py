"""Killed before any of its writes, the same command finishes what it began, once."""

from __future__ import annotations

import shutil
import signal
import sys

import pytest
from killed_writes import die_at_write, forked

from yanmo.store.champion_records import all_records
from yanmo.store.opening import open_store

SIGNED = ("--why", "rude", "--who", "li", "--yes")
COMMANDS = {
    "promote": lambda stage: stage.promote(),
    "set": lambda stage: stage.tool("set", stage.pointer("train").key, *SIGNED),
    "rollback": lambda stage: stage.tool("rollback", *SIGNED),
    "rollback --to": lambda stage: stage.tool("rollback", "--to", "1", *SIGNED),
}


def killed(stage, command, moment):
    die_at_write(moment)
    sys.exit(COMMANDS[command](stage))


def test_a_rollback_after_a_killed_promote_only_lets_the_pointer_follow(stage):
    """As `history` advises where the pointer is behind: the new champion is not taken down."""
    for seed in (1, 2):
        stage.evaluate(stage.model(seed), 9 - 0.3 * seed)
        assert stage.promote(*(("--hold",) if seed == 2 else ())) == 0
    for moment in range(9):
        folder = shutil.copytree(stage.folder, stage.folder.with_name(f"copy-{moment}"))
        copy = type(stage)(open_store(str(folder)), folder)
        forked(killed, copy, "promote", moment)
        if len(all_records(copy.store, "dev")) == 2:
            break
    new = all_records(copy.store, "dev")[-1].model
    assert copy.pointer("champion") != new, "killed between the two"
    assert copy.tool("rollback", *SIGNED) == 0
    (_, last) = all_records(copy.store, "dev")
    assert copy.pointer("champion") == new == last.model and not last.rolled_back


@pytest.mark.parametrize("command", COMMANDS)
def test_the_same_command_finishes_what_a_killed_one_began(stage, command):
    models = [stage.model(seed) for seed in (1, 2, 3)]
    for model, more in zip(models, ((), (), ("--hold",)), strict=True):
        stage.evaluate(model, 9 - 0.3 * int(model.manifest.options["seed"]))
        assert stage.promote(*more) == 0
    before = all_records(stage.store, "dev")
    champion = models[0] if command.startswith("rollback") else models[2]
    codes = []
    while not codes or codes[-1] != 0:
        folder = shutil.copytree(stage.folder, stage.folder.with_name(f"copy-{len(codes)}"))
        copy = type(stage)(open_store(str(folder)), folder)
        codes.append(forked(killed, copy, command, len(codes)))
        if codes[-1] != 0:
            assert codes[-1] == -signal.SIGKILL
            assert COMMANDS[command](copy) == 0
        *earlier, last = all_records(copy.store, "dev")
        assert earlier == before, "entered once"
        assert last.model == champion.reference == copy.pointer("champion")
        assert last.previous == models[1].reference
        assert (last.who, last.why) == (("", "") if command == "promote" else ("li", "rude"))
        rolled_back = [models[1].content_digest] if command.startswith("rollback") else []
        assert [one.model for one in last.rolled_back] == rolled_back
    assert len(codes) > 2, "before the record, before the pointer, and not at all"
