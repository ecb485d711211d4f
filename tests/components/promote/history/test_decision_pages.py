"""The page of a verdict about which a person decides: it says how that stands, whoever opens it when."""

import html
import json
import multiprocessing
import re

import pytest

from yanmo.nights.places import is_of_nights
from yanmo.store.channel.held import read_held
from yanmo.store.output import open_reference
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
