"""The page of a verdict about which a person decides: it says how that stands, whoever opens it when."""

import html
import json
import multiprocessing
import os
import re
import time

import pytest

from yanmo.nights.places import held_page_name, is_of_nights, page_name
from yanmo.nights.publishing import rows_shown
from yanmo.nights.telling import Run, tell_verdict
from yanmo.promote.command import main
from yanmo.store.channel.held import read_held
from yanmo.store.output import open_reference
from yanmo.store.pointers import swap_pointer
from yanmo.tools.store.command import main as store_tool

SIGNED = ("--why", "reads well", "--who", "li", "--yes")


@pytest.fixture
def held(stage):
    """A first model that waits."""
    model = stage.model(1)
    stage.evaluate(model)
    assert stage.promote("--hold") == 0
    return model


def stored(stage):
    """The page that is kept with the verdict, which is never written again."""
    return open_reference(stage.store, stage.pointer("promote")).path("report.html")


def shown(stage):
    """The page that a reader of that one comes to: its one link within the store."""
    page = stored(stage)
    (link,) = re.findall(r'<p class="hold">.*?<a href="([^"]+)"', page.read_text(encoding="utf-8"))
    return html.unescape((page.parent / link).resolve().read_text(encoding="utf-8"))


def test_the_kept_page_leads_to_the_one_that_says_that_it_waits(stage, held):
    assert "A person decides" not in stored(stage).read_text(encoding="utf-8")
    assert "a person decides:" in stored(stage).read_text(encoding="utf-8")
    page = shown(stage)
    assert "Held for approval until 20" in page and "等待人工批准" in page and "Rules of promotion" in page
    assert f"yanmo promote approve train/{held.reference.key[:12]} --store {stage.store.uri}" in page
    (info,) = list(stage.store.list("nights"))
    assert is_of_nights(info.name)
    assert store_tool(["verify", "--store", str(stage.folder)]) == 0
    assert store_tool(["gc", "--store", str(stage.folder), "--older-than", "0s", "--delete"]) == 0
    assert shown(stage) == page, "gc keeps it"


@pytest.mark.parametrize(
    ("word", "says"),
    [("approve", "Approved by li, 20{}: reads well. It became champion."), ("reject", "Rejected by li, 20")],
)
def test_it_says_who_decided_when_and_why(stage, held, word, says, capsys):
    before = stored(stage).read_bytes()
    assert stage.tool(word, *SIGNED) == 0
    page = shown(stage)
    start = says.partition("{}")[0]
    assert re.search(re.escape(start) + r"\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC: reads well", page)
    assert "Held for approval" not in page and "yanmo promote approve" not in page.split("<h1>")[0]
    assert stored(stage).read_bytes() == before
    assert stage.tool("history") == 0
    said = capsys.readouterr().out
    assert re.search("approved by li: reads well|rejected 20.+ by li: reads well", said)


def test_a_winner_that_nobody_holds_has_no_such_page(stage):
    stage.evaluate(stage.model(1))
    assert stage.promote() == 0
    assert 'class="hold"' not in stored(stage).read_text(encoding="utf-8")
    assert not list(stage.store.list("nights"))


def two_held(stage):
    """Two models that won against the same champion, each in a night of its own."""
    stage.evaluate(stage.model(1), 8.0)
    assert stage.promote() == 0
    own = f"evaluate/{stage.pointer('champion_evaluation').key}"
    models = []
    for number in (2, 3):
        models.append(stage.model(number))
        stage.evaluate(models[-1], 8.0 - number / 10)
        assert stage.promote("--hold", "--champion", own, "--run-id", f"run-{number}") == 0
    return models


def on_pages(stage, model, run_id):
    """What the page of its verdict says above the verdict, what that of its night, and its row."""
    entry = read_held(stage.store, "dev").of(model.content_digest)
    [row] = [row for row in rows_shown(stage.store, "dev") if row.run_id == run_id]
    names = held_page_name("dev", entry.verdict.key), page_name("dev", row)
    pages = [stage.store.read(name)[0].decode() for name in names]
    assert all('class="hold"' in page for page in pages)
    return [html.unescape(page.partition("<h1>")[0]) for page in pages] + [row.sentence.en], row.state


def test_a_model_whose_champion_has_changed_says_so_wherever_it_is_shown(stage, caplog):
    """As `approve` refuses it: with the same words and the same command; after a rollback it waits again."""
    one, two = two_held(stage)
    said, state = on_pages(stage, two, "run-3")
    assert all("Held for approval until 20" in each for each in said) and state == "held"
    name = f"train/{two.manifest.key[:12]}"
    assert stage.tool("approve", f"train/{one.manifest.key}", *SIGNED) == 0
    stale, state = on_pages(stage, two, "run-3")
    for each in stale:
        assert "Held for approval" not in each and "yanmo promote approve" not in each
        assert f"It cannot be approved: {name} was compared with train/" in each
    assert state == "not promoted" and "无法批准" in stale[0] and "旧" in stale[0]
    assert stage.tool("approve", f"train/{two.manifest.key}", *SIGNED) == 65
    refused = re.search(r"(train/\w+ was compared .* now); nothing was moved", caplog.text)[1]
    command = re.search(r"Compare it again: (yanmo promote --hold [^;]+);", caplog.text)[1]
    assert all(refused in each and command in each for each in stale)
    assert stage.tool("rollback", "--why", "dull", "--who", "li", "--yes") == 0
    again, state = on_pages(stage, two, "run-3")
    assert all("Held for approval until 20" in each for each in again) and state == "held"
    assert stage.tool("approve", f"train/{two.manifest.key}", *SIGNED) == 0
    assert on_pages(stage, two, "run-3")[1] == "promoted"


def test_a_night_that_promotes_another_model_makes_those_that_wait_stale(stage):
    _, two = two_held(stage)
    stage.evaluate(stage.model(4), 7.0)
    assert stage.promote("--run-id", "run-4") == 0
    said, state = on_pages(stage, two, "run-3")
    assert state == "not promoted"
    assert all(re.search(r"the champion is train/\w{12} now\. To compare it again", each) for each in said)


def test_compared_again_it_waits_again(stage):
    one, two = two_held(stage)
    assert stage.tool("approve", f"train/{one.manifest.key}", *SIGNED) == 0
    command = re.search(r"--challenger (\S+)", on_pages(stage, two, "run-3")[0][0])[1]
    assert stage.promote("--hold", "--challenger", command, "--run-id", "run-5") == 0
    said, state = on_pages(stage, two, "run-5")
    assert state == "held" and all("Held for approval until 20" in each for each in said)


def test_a_page_that_an_earlier_version_left_as_waiting_is_mended_by_the_refusal(stage):
    """The champion moved without a word to the pages."""
    one, two = two_held(stage)
    assert swap_pointer(stage.store, "dev", "champion", stage.pointer("champion"), one.reference)
    assert stage.tool("approve", f"train/{two.manifest.key}", *SIGNED) == 65
    assert "It cannot be approved" in on_pages(stage, two, "run-3")[0][0]


def test_one_whose_time_is_over_says_so(stage):
    stage.evaluate(stage.model(1))
    assert stage.promote("--hold", "--hold-days", "0.000001", "--run-id", "run-1") == 0
    model = stage.pointer("train").key
    assert stage.tool("approve", f"train/{model}", *SIGNED) == 65
    [row] = rows_shown(stage.store, "dev")
    assert "It cannot be approved" in row.sentence.en and "its comparison is too old now" in row.sentence.en


def test_a_late_decision_makes_a_page_whole_that_gc_had_made_short(stage):
    """Nobody decided in time, and the night is old by now; the report is there still, as its run is kept."""
    stage.evaluate(stage.model(1), 8.0)
    assert stage.promote("--hold", "--hold-days", "0.000001", "--run-id", "run-1") == 0
    model = f"train/{stage.pointer('train').key}"
    [row] = rows_shown(stage.store, "dev")
    later = {"state": "failed", "sentence": {"en": "No space.", "zh": "无空间。"}}
    run = Run(store=stage.store, channel="dev", run_id="run-2", date="2999-01-01", timezone="UTC")
    tell_verdict(run, later)
    words = ["gc", "--store", str(stage.folder), "--older-than", "0", "--keep-runs", "9", "--keep-pages", "1"]

    def page_after_gc():
        for path in (stage.folder / "nights").rglob("*.*"):
            os.utime(path, (time.time() - 60,) * 2)
        assert store_tool([*words, "--delete"]) == 0
        return stage.store.read(page_name("dev", row))[0].decode()

    assert "Rules of promotion" not in (page := page_after_gc()) and "It cannot be approved" in page
    assert stage.tool("reject", model, *SIGNED) == 0
    page = stage.store.read(page_name("dev", row))[0].decode()
    assert "Rules of promotion" in page and "Rejected by li, 20" in page
    assert "Rules of promotion" not in (page := page_after_gc()) and "Rejected by li, 20" in page
    assert stage.tool("reject", model, "--why", "again", "--who", "wu", "--yes") == 0
    assert stage.store.read(page_name("dev", row))[0].decode() == page, "nothing new was said"
    assert stage.promote("--hold", "--run-id", "run-3") == 0, "that night has its own page"
    assert stage.store.read(page_name("dev", row))[0].decode() == page


def test_the_kept_page_of_every_winner_says_where_to_look_later(stage, capsys):
    """Also of one that nobody held when it was judged; the command tells, whatever became of it since."""
    stage.evaluate(stage.model(1))
    assert stage.promote("--dry-run") == 0, "so it was judged before anybody held it"
    assert stage.promote("--hold") == 0
    page = stored(stage).read_text(encoding="utf-8")
    command = f"yanmo promote history --store {stage.store.uri} --channel dev"
    assert f"<code>{html.escape(command)}</code>" in page and 'class="hold"' not in page
    capsys.readouterr()
    assert main([*command.split()[2:]]) == 0
    said = capsys.readouterr().out
    entry = read_held(stage.store, "dev").entries[0]
    assert "waits for a person since" in said and held_page_name("dev", entry.verdict.key) in said


def test_what_a_person_wrote_is_text_on_it(stage, held):
    why = "<script>alert(1)</script> & \u202e 好"
    assert stage.tool("approve", "--why", why, "--who", "<b>li</b>", "--yes") == 0
    (info,) = list(stage.store.list("nights"))
    page = stage.store.read(info.name)[0].decode()
    assert "<script>alert" not in page and "<b>li" not in page and "\u202e" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_verdict_of_another_version_does_not_stop_a_decision(stage, held, caplog):
    """The page needs report.json, which the store has lost; the decision needs verdict.json alone."""
    (path,) = (stage.folder / "cas/promote").glob("*/*/report.json")
    path.unlink()
    assert stage.tool("approve", *SIGNED) == 0
    assert "the pages of nights of channel dev are behind" in caplog.text
    assert stage.pointer("champion") == held.reference


def test_a_page_that_a_kill_left_behind_is_mended_by_the_same_command(stage, held):
    (info,) = list(stage.store.list("nights"))
    behind = stage.store.read(info.name)[0]
    assert stage.tool("reject", *SIGNED) == 0
    name = stage.folder / info.name
    after = name.read_bytes()
    name.write_bytes(behind)
    short = f"train/{held.reference.key}"
    assert stage.tool("reject", short, "--why", "again", "--who", "wu", "--yes") == 0
    assert name.read_bytes() == after, "with the first signature"
    name.unlink()
    assert stage.promote("--hold") == 0
    assert name.read_bytes() == after, "the next night that judges it mends it too"


def test_of_two_who_decide_at_once_the_page_says_what_counts(stage, held):
    def decide(word, who):
        stage.tool(word, f"train/{held.reference.key}", "--why", who, "--who", who, "--yes")

    context = multiprocessing.get_context("fork")
    people = [
        context.Process(target=decide, args=(w, f"{w}{i}")) for i in range(2) for w in ("approve", "reject")
    ]
    for one in people:
        one.start()
    for one in people:
        one.join()
    entry = read_held(stage.store, "dev").of(held.content_digest)
    word = "Rejected" if entry.state == "rejected" else "Approved"
    assert f"{word} by {entry.who}, 20" in shown(stage)


def test_kfp_hands_the_page_over_that_says_who_approved(stage, held, tmp_path):
    assert stage.tool("approve", *SIGNED) == 0
    kfp = tmp_path / "kfp"
    names = ("verdict", "report", "verdict_line", "champion", "metrics")
    artifacts = {n: {"artifacts": [{"name": n, "uri": str(kfp / n)}]} for n in names}
    parameters = {n: {"outputFile": str(kfp / n)} for n in ("promoted", "result")}
    asked = {"artifacts": artifacts, "parameters": parameters, "outputFile": str(kfp / "out.json")}
    assert stage.promote("--executor-input", json.dumps({"outputs": asked})) == 0
    assert (kfp / "promoted").read_text() == "true"
    for name in ("result", "verdict_line", "report"):
        assert "Approved by li, 20" in (kfp / name).read_text(encoding="utf-8"), name
