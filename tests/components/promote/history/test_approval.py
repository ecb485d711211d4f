"""`yanmo promote --hold`, `approve` and `reject`: who waits, who decides, what a kill leaves behind."""

import json
import multiprocessing
import os
import re
import signal
import time

import pytest

from yanmo.promote.history import approval, champion
from yanmo.promote.history.champion_records import all_records
from yanmo.store.channel.held import read_held
from yanmo.store.channel.licenses import set_allowed
from yanmo.store.pointers import swap_pointer
from yanmo.tools.store.command import main as store_tool

SIGNED = ("--why", "reads well", "--who", "li", "--yes")


@pytest.fixture
def waiting(stage):
    """A channel with a champion at 8.0 bits, and a model at 7.8 that waits."""
    stage.evaluate(stage.model(1), 8.0)
    assert stage.promote() == 0
    return hold(stage, 2, 7.8)


def hold(stage, number, bits, *more):
    model = stage.model(number)
    evaluation = stage.evaluate(model, bits)
    own = f"evaluate/{stage.pointer('champion_evaluation').key}" if stage.pointer("champion") else "none"
    assert (
        stage.promote(
            "--hold", "--challenger", f"evaluate/{evaluation.reference.key}", "--champion", own, *more
        )
        == 0
    )
    return model


def entry_of(stage, model):
    return read_held(stage.store, "dev").of(model.content_digest)


def short(model):
    return f"train/{model.reference.key[:12]}"


def test_a_winner_waits_and_the_champion_stays_until_a_person_approves(stage, waiting, caplog, capsys):
    first = all_records(stage.store, "dev")[0].model
    assert stage.pointer("champion") == first
    assert stage.verdict()["outcome"] == "promoted", "the verdict is the gate's, whoever decides"
    assert stage.tool("history") == 0
    assert f"held: {short(waiting)} waits for a person since 20" in capsys.readouterr().out
    assert stage.tool("approve", *SIGNED) == 0
    assert stage.pointer("champion") == waiting.reference
    record = all_records(stage.store, "dev")[-1]
    assert (record.number, record.kind, record.who, record.why) == (2, "promotion", "li", "reads well")
    assert record.verdict == stage.pointer("promote") and record.previous == first
    assert record.evaluation == stage.pointer("champion_evaluation") == entry_of(stage, waiting).evaluation
    assert "is champion of channel 'dev' (number 2), approved by li: reads well" in capsys.readouterr().out
    assert stage.tool("history") == 0
    assert "approved by li: reads well" in capsys.readouterr().out
    assert entry_of(stage, waiting).state == "approved"


def test_holding_changes_no_verdict_and_no_key(stage):
    stage.evaluate(stage.model(1), 8.0)
    assert stage.promote("--dry-run") == 0
    stage.evaluate(stage.model(1), 8.0)
    assert stage.promote("--hold", "--hold-days", "3") == 0
    held = stage.pointer("promote")
    assert stage.promote() == 0, "the same verdict, promoted this time"
    assert stage.pointer("promote") == held
    assert stage.pointer("champion") is not None


def test_a_first_champion_waits_as_well(stage):
    model = stage.model(1)
    stage.evaluate(model)
    assert stage.promote("--hold") == 0
    assert stage.pointer("champion") is None
    assert stage.tool("approve", *SIGNED) == 0
    assert stage.pointer("champion") == model.reference
    assert all_records(stage.store, "dev")[0].who == "li"


def test_the_page_and_kfp_say_that_it_waits(stage, tmp_path):
    stage.evaluate(stage.model(1))
    names = ("verdict", "report", "verdict_line", "champion", "metrics")
    artifacts = {n: {"artifacts": [{"name": n, "uri": str(tmp_path / "kfp" / n)}]} for n in names}
    parameters = {n: {"outputFile": str(tmp_path / "kfp" / n)} for n in ("promoted", "result")}
    asked = {"artifacts": artifacts, "parameters": parameters, "outputFile": str(tmp_path / "kfp/out.json")}
    assert stage.promote("--hold", "--executor-input", json.dumps({"outputs": asked})) == 0
    assert (tmp_path / "kfp/promoted").read_text() == "false"
    for name in ("result", "verdict_line", "report"):
        assert "Held for approval until 20" in (tmp_path / "kfp" / name).read_text(encoding="utf-8"), name
    assert "等待人工批准" in (tmp_path / "kfp/report").read_text(encoding="utf-8")
    assert not (tmp_path / "kfp/champion").exists() or "train" not in (tmp_path / "kfp/champion").read_text()
    assert "Held" not in stage.written("report.html"), "what is committed does not depend on who waits"


def test_a_held_model_that_lost_its_champion_is_refused_and_says_what_to_run(stage, waiting, caplog):
    faster = stage.model(3)
    assert swap_pointer(stage.store, "dev", "champion", stage.pointer("champion"), faster.reference)
    assert stage.tool("approve", *SIGNED) == 65
    assert f"but the champion is {short(faster)} now; nothing was moved" in caplog.text
    command = re.search(r"Compare it again: yanmo promote (--hold --challenger \S+)", caplog.text)
    assert command and entry_of(stage, waiting).evaluation.key.startswith(command[1].split("/")[1])
    assert stage.pointer("champion") == faster.reference
    assert entry_of(stage, waiting).state == "waiting"


def test_the_command_that_a_stale_one_names_makes_it_approvable(stage, caplog):
    stage.evaluate(stage.model(1), 8.0)
    stage.promote()
    slower, faster = hold(stage, 2, 7.5), hold(stage, 3, 7.8)
    assert stage.tool("approve", *SIGNED) == 64, "two wait: a person names one"
    assert f"2 models wait in channel 'dev' of {stage.store.uri}" in caplog.text
    assert stage.tool("approve", short(faster), *SIGNED) == 0
    assert stage.tool("approve", short(slower), *SIGNED) == 65
    command = re.search(r"yanmo promote (--hold --challenger \S+) --store", caplog.text)[1].split()
    assert stage.promote(*command) == 0
    assert entry_of(stage, slower).previous == faster.reference
    assert stage.tool("approve", *SIGNED) == 0, "only one waits now"
    assert stage.pointer("champion") == slower.reference
    assert [r.who for r in all_records(stage.store, "dev")] == ["", "li", "li"]


def test_a_held_model_that_a_newer_comparison_refuses_waits_no_longer(stage, waiting):
    stronger = hold(stage, 3, 7.0)
    assert stage.tool("approve", short(stronger), *SIGNED) == 0
    evaluation = entry_of(stage, waiting).evaluation.key
    assert stage.promote("--hold", "--challenger", f"evaluate/{evaluation}") == 0
    entry = entry_of(stage, waiting)
    assert entry.state == "withdrawn" and entry.why.startswith("Not promoted: no better than the champion")


def test_approving_twice_is_done_once(stage, waiting, capsys):
    assert stage.tool("approve", short(waiting), *SIGNED) == 0
    assert stage.tool("approve", short(waiting), "--why", "again", "--who", "wu", "--yes") == 0
    assert "approved by li: reads well" in capsys.readouterr().out.splitlines()[-1]
    assert len(stage.records()) == 2


def test_what_is_served_is_not_rejected(stage, waiting, caplog):
    stage.tool("approve", *SIGNED)
    assert stage.tool("reject", short(waiting), *SIGNED) == 65
    assert (
        "is the champion of channel 'dev' and is served; take it down: yanmo promote rollback" in caplog.text
    )


def test_a_rejected_model_is_not_held_again_but_a_person_may_think_again(stage, waiting, caplog, capsys):
    assert stage.tool("reject", "--why", "dull", "--who", "wu", "--yes") == 0
    assert stage.tool("reject", short(waiting), "--why", "dull", "--who", "wu", "--yes") == 0, "twice is once"
    own = f"evaluate/{stage.pointer('champion_evaluation').key}"
    assert stage.promote("--hold", "--champion", own) == 0
    assert entry_of(stage, waiting).state == "rejected"
    assert "Rejected by wu, 20" in caplog.text
    assert stage.tool("approve", *SIGNED) == 65
    assert "nothing waits to be approved" in caplog.text
    stage.tool("history")
    assert "rejected 20" in (said := capsys.readouterr().out) and "by wu: dull" in said
    assert stage.tool("approve", short(waiting), *SIGNED) == 0
    assert stage.pointer("champion") == waiting.reference


def test_rollback_after_an_approval_brings_the_one_before_back(stage, waiting, caplog):
    first = stage.pointer("champion")
    stage.tool("approve", *SIGNED)
    assert stage.tool("rollback", "--why", "rude", "--who", "wu", "--yes") == 0
    assert stage.pointer("champion") == first
    assert stage.tool("approve", short(waiting), *SIGNED) == 65
    assert "was approved by li before, and is not the champion now" in caplog.text
    own = f"evaluate/{stage.pointer('champion_evaluation').key}"
    assert stage.promote("--hold", "--champion", own) == 0
    assert "this model was taken down before" in caplog.text
    assert stage.pointer("champion") == first


def test_what_the_channel_forbids_since_it_waits_is_not_approved(stage, waiting, caplog):
    set_allowed(stage.store, "dev", ["MIT"], who="wu", why="counsel")
    assert stage.tool("approve", *SIGNED) == 65
    assert "may not be served" in caplog.text and "allows MIT only" in caplog.text
    assert stage.pointer("champion") != waiting.reference
    assert entry_of(stage, waiting).state == "waiting", "no signature stays"


def test_one_that_waited_too_long_is_not_approved_and_gc_may_take_it(stage, caplog, capsys):
    stage.evaluate(stage.model(1), 8.0)
    stage.promote()
    model = hold(stage, 2, 7.8, "--hold-days", "0.00002")
    time.sleep(2)
    assert stage.tool("approve", short(model), *SIGNED) == 65
    assert (
        "its comparison is too old now: make a new one. Compare it again: yanmo promote --hold" in caplog.text
    )
    for name in ("train", "evaluate", "promote"):
        (stage.folder / f"pointers/dev/{name}.json").unlink(missing_ok=True)
    assert store_tool(["gc", "--store", str(stage.folder), "--older-than", "0s", "--delete"]) == 0
    assert not (stage.folder / model.reference.manifest_uri).exists()


def test_gc_keeps_what_waits(stage, waiting):
    for name in ("train", "evaluate", "promote"):
        (stage.folder / f"pointers/dev/{name}.json").unlink(missing_ok=True)
    assert store_tool(["gc", "--store", str(stage.folder), "--older-than", "0s", "--delete"]) == 0
    assert stage.tool("approve", *SIGNED) == 0
    assert stage.pointer("champion") == waiting.reference
    assert store_tool(["verify", "--store", str(stage.folder)]) == 0


KILLS = {
    "signed": (approval, "make_champion"),
    "pointer": (champion, "append_record"),
    "record": (champion, "settle_evaluation"),
    "evaluation": (approval, "_close"),
}


@pytest.mark.parametrize("then", ["approve", "promote"])
@pytest.mark.parametrize("kill_at", KILLS)
def test_an_approval_that_was_killed_is_completed_with_its_signature(stage, waiting, kill_at, then):
    module, name = KILLS[kill_at]

    def killed():
        setattr(module, name, lambda *arguments: os.kill(os.getpid(), signal.SIGKILL))
        stage.tool("approve", *SIGNED)

    child = multiprocessing.get_context("fork").Process(target=killed)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    evaluation = entry_of(stage, waiting).evaluation
    if then == "promote":  # the next night, which may judge but not approve
        own = stage.pointer("champion_evaluation").key
        assert (
            stage.promote(
                "--hold", "--challenger", f"evaluate/{evaluation.key}", "--champion", f"evaluate/{own}"
            )
            == 0
        )
        is_moved = kill_at != "signed"
        assert (stage.pointer("champion") == waiting.reference) == is_moved
    if then == "approve" or kill_at == "signed":
        assert stage.tool("approve", short(waiting), "--why", "late", "--who", "wu", "--yes") == 0
    assert stage.pointer("champion") == waiting.reference
    assert stage.pointer("champion_evaluation") == evaluation
    assert [(r.number, r.who, r.why) for r in all_records(stage.store, "dev")] == [
        (1, "", ""),
        (2, "li", "reads well"),
    ]
    assert entry_of(stage, waiting).standing(stage.pointer("champion"), time.time()) == "approved"


def test_of_two_who_decide_at_once_one_decides(stage, waiting):
    def decide(word, who):
        stage.tool(word, short(waiting), "--why", who, "--who", who, "--yes")

    context = multiprocessing.get_context("fork")
    people = [
        context.Process(target=decide, args=(w, f"{w}{i}")) for i in range(3) for w in ("approve", "reject")
    ]
    for one in people:
        one.start()
    for one in people:
        one.join()
    entry, records = entry_of(stage, waiting), all_records(stage.store, "dev")
    if stage.pointer("champion") == waiting.reference:
        assert [r.who for r in records[1:]] == [entry.who] and entry.state in ("approved", "signed")
    else:
        assert entry.state == "rejected" and len(records) == 1


@pytest.mark.parametrize("forged", ["a verdict that refuses it", "another model's verdict"])
def test_an_entry_that_was_forged_is_not_approved(stage, waiting, caplog, forged):
    """Whoever may hold need not be who may approve: the verdict is looked at again."""
    worse = stage.model(9)
    stage.evaluate(worse, 9.0)
    own = f"evaluate/{stage.pointer('champion_evaluation').key}"
    assert stage.promote("--champion", own) == 0
    refused = {"verdict": vars(stage.pointer("promote"))} if forged == "a verdict that refuses it" else {}
    path = stage.folder / "pointers/dev/records/held.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values["entries"][0] |= {"model": vars(worse.reference), **refused}
    unsealed = {name: values[name] for name in ("schema", "entries")}
    path.write_text(json.dumps(unsealed), encoding="utf-8")
    assert stage.tool("approve", *SIGNED) == 65
    assert "was changed by hand, and nothing was moved" in caplog.text
    assert len(stage.records()) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("approve", "--why", " ", "--yes"), 64, "--why is empty"),
        (("approve", "--yes"), 64, "--why"),
        (("approve", *SIGNED[:4]), 64, "nobody to ask"),
        (("approve", *SIGNED[:2], "--yes"), 64, "--who is empty"),
        (("approve", "train/00000000", *SIGNED), 65, "no such model was held"),
        (("approve", "nonsense", *SIGNED), 64, "expected train/KEY"),
        (("reject", "--channel", "empty", *SIGNED), 65, "nothing waits to be approved in channel 'empty'"),
        (("approve", "--channel", "../dev", *SIGNED), 64, "--channel '../dev'"),
    ],
)
def test_what_cannot_be_decided_is_refused(stage, waiting, words, code, said, caplog):
    assert stage.tool(words[0], *words[1:]) == code
    assert said in caplog.text
    assert len(stage.records()) == 1 and entry_of(stage, waiting).state == "waiting"


@pytest.mark.parametrize(
    "damage", ["{", '{"schema": "yanmo.held/2"}', '{"schema": "yanmo.held/1", "entries": 3}']
)
def test_a_damaged_list_of_held_models_is_refused_by_name(stage, waiting, caplog, damage):
    path = stage.folder / "pointers/dev/records/held.json"
    path.write_text(damage, encoding="utf-8")
    assert stage.tool("approve", *SIGNED) == 65
    assert "pointers/dev/records/held.json" in caplog.text
    assert store_tool(["gc", "--store", str(stage.folder), "--older-than", "0s"]) == 65
