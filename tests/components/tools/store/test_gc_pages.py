"""gc makes the pages of old nights short: which ones, how much that frees, and after a kill the same."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from datetime import date, timedelta
from pathlib import Path

import pytest
from ground import Ground
from killed_writes import die_at_write

from yanmo.nights.changing import Values
from yanmo.nights.night import Words
from yanmo.nights.overdue import tell_missed
from yanmo.nights.places import record_name
from yanmo.nights.record import DONE, FAILED, StageEnd
from yanmo.nights.short_pages import MOST_BYTES
from yanmo.nights.telling import Run, tell_begin, tell_end, tell_verdict
from yanmo.options.time_zone import zone_of
from yanmo.store.channel.held import Entry, days_from, put
from yanmo.store.output import Output
from yanmo.store.pointers import move_pointer
from yanmo.store.schema import utc_now
from yanmo.tools.nights.command import main as nights_tool
from yanmo.tools.store.gc_planner import SETTLED_SECONDS

FIRST = date(2026, 1, 1)
REPORT = "<p>the whole report</p>" + "诗" * 30_000


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("YANMO_WEBHOOK_URL", raising=False)


def night(number: int) -> str:
    return (FIRST + timedelta(days=number)).isoformat()


def whole(record: Values) -> str:
    return f'<meta name="yanmo-serial" content="{record["serial"]}">{REPORT}'


def run_of(ground: Ground, number: int, channel: str = "nightly") -> Run:
    return Run(store=ground.store, channel=channel, run_id=f"r{number}", date=night(number), timezone="UTC")


def tell(
    ground: Ground, number: int, state: str = "not promoted", channel: str = "nightly", **made: Output
) -> None:
    """A night with a verdict; `made`: what its stages made."""
    run = run_of(ground, number, channel)
    for stage, output in made.items():
        tell_end(run, StageEnd(task=stage, stage=stage, state=DONE, key=output.manifest.key), by_chat=False)
    words = {"en": f"Night {number}: {state}.", "zh": f"第 {number} 夜。"}
    tell_verdict(run, {"state": state, "sentence": words, "bits": 8.1}, whole)


def page(number: int, channel: str = "nightly") -> str:
    return f"nights/{channel}/{night(number)}-r{number}.html"


def short(ground: Ground, channel: str = "nightly") -> set[int]:
    """The nights of a channel whose page is short."""
    infos = [i for i in ground.store.list(f"nights/{channel}") if "-r" in i.name and i.bytes <= MOST_BYTES]
    return {int(info.name.rpartition("-r")[2].removesuffix(".html")) for info in infos}


def settled(ground: Ground) -> None:
    """Wait until what was said of nights is as old as gc asks for."""
    newest = max(info.modified for info in ground.store.list("nights"))
    while ground.store.clock() - newest < SETTLED_SECONDS:
        time.sleep(0.1)


def documents(ground: Ground) -> dict[str, bytes]:
    """Everything below nights/, but for the second in which a page became short."""
    found = {}
    for info in ground.store.list("nights"):
        data, _ = ground.store.read(info.name)
        if "/runs/" in info.name:
            values = json.loads(data)
            values.get("short", {}).pop("at", None)
            data = json.dumps(values).encode()
        elif info.bytes <= MOST_BYTES:
            data = b"".join(part for part in data.split(b"\n") if b"gc --keep-pages" not in part)
        found[info.name] = data
    return found


def test_pages_before_the_newest_nights_become_short_and_all_leads_to_them(ground: Ground) -> None:
    for number in range(5):
        tell(ground, number)
    lists = {
        n: ground.store.read(n)[0] for n in ground.names("nights") if "-r" not in n and "/runs/" not in n
    }
    settled(ground)
    before = ground.names("nights")
    shown = ground.tool("gc", "--older-than", "0", "--keep-pages", "2")
    assert "would make 3 page(s) of nights of channel nightly short" in shown.out
    planned = ground.tool("gc", "--older-than", "0", "--keep-pages", "2", "--json").json
    assert [one["name"] for one in planned["pages"]] == [page(number) for number in range(3)]
    assert not short(ground), "a dry run writes nothing"
    sizes = {info.name: info.bytes for info in ground.store.list("nights")}
    done = ground.gc("--keep-pages", "2")
    assert done.code == 0 and "made 3 page(s) of nights of channel nightly short" in done.out
    assert short(ground) == {0, 1, 2} and ground.names("nights") == before
    freed = {i.name: sizes[i.name] - i.bytes for i in ground.store.list("nights") if "-r" in i.name}
    assert {one["name"]: one["frees"] for one in planned["pages"]} == {n: f for n, f in freed.items() if f}
    assert {name: ground.store.read(name)[0] for name in lists} == lists, "index, months, feed are as before"
    assert ground.tool("verify").code == 0
    again = ground.gc("--keep-pages", "2")
    assert again.code == 0 and "page(s)" not in again.out and ground.store.read(page(0))[0]


def test_without_the_option_gc_leaves_all_pages_as_they_are(ground: Ground) -> None:
    for number in range(3):
        tell(ground, number)
    settled(ground)
    before = {name: ground.store.read(name) for name in ground.names("nights")}
    for words in ((), ("--keep-pages", "all"), ("--keep-pages", "3")):
        assert ground.gc(*words).code == 0
    assert {name: ground.store.read(name) for name in ground.names("nights")} == before


def test_a_night_whose_model_became_champion_stays_whole_for_ever(folder_ground: Ground) -> None:
    """Promoted at once, later by a comparison of its own, or in another channel; a night that only measured
    the champion, or found its model made, does not."""
    ground = folder_ground.chain()
    old, model, tokenizer = (ground.outputs[name] for name in ("old", "model", "tokenizer"))
    lost, measured = ground.unwanted(), ground.commit("evaluate", inputs={"model": model})
    record = json.loads(ground.store.read("pointers/demo/history/000001.json")[0])
    (Path(ground.uri) / "pointers/demo/history/000001.json").write_text(
        json.dumps({**record, "evaluation": vars(measured.reference)})
    )
    tell(ground, 0, "promoted", train=lost)
    tell(ground, 1, "not promoted", train=model)
    tell(ground, 2, "held", train=old)
    tell(ground, 3, "nothing new", train=model)
    tell(ground, 4, "not promoted", train=lost, tokenizer=tokenizer)
    run = run_of(ground, 5)
    key = measured.manifest.key
    tell_end(run, StageEnd(task="evaluate-champion", stage="evaluate", state=DONE, key=key), by_chat=False)
    tell(ground, 5, train=lost)
    tell(ground, 9)
    settled(ground)
    shown = ground.tool("gc", "--older-than", "0", "--keep-pages", "1", "--explain")
    assert "keep 3 old page(s) of nights whole: its model became champion" in shown.out
    assert ground.gc("--keep-pages", "1").code == 0
    assert short(ground) == {3, 4, 5}


def held_entry(ground: Ground, number: int, until: str) -> Output:
    """A model that waits in the channel."""
    model = ground.commit("train", seed=100 + number, text=f"候{number}")
    verdict = ground.commit("promote", n=number)
    evaluation = ground.commit("evaluate", n=number)
    entry = Entry(
        model=model.reference,
        evaluation=evaluation.reference,
        verdict=verdict.reference,
        previous=None,
        compared_with=None,
        writing=None,
        sentence="Promoted.",
        held_at=days_from(utc_now(), -20),
        expires_at=until,
    )
    assert put(ground.store, "nightly", entry, lambda older: True)
    return verdict


def test_a_night_that_waits_for_a_person_stays_whole_until_nobody_may_decide(folder_ground: Ground) -> None:
    ground = folder_ground
    waits = held_entry(ground, 1, days_from(utc_now(), 1))
    over = held_entry(ground, 2, days_from(utc_now(), -1))
    tell(ground, 1, "held", promote=waits)
    tell(ground, 2, "held", promote=over)
    tell(ground, 9)
    settled(ground)
    shown = ground.tool("gc", "--older-than", "0", "--keep-pages", "1", "--explain").out
    assert "keep 1 old page(s) of nights whole: its model waits for a person" in shown
    assert ground.gc("--keep-pages", "1").code == 0
    assert short(ground) == {2}


def test_nights_are_counted_by_date_each_channel_for_itself_and_missed_ones_not_at_all(
    folder_ground: Ground,
) -> None:
    ground = folder_ground
    tell(ground, 0)
    tell(ground, 1)
    tell(ground, 0, channel="weekly")
    again = Run(store=ground.store, channel="nightly", run_id="r100", date=night(1), timezone="UTC")
    tell_verdict(again, {"state": "not promoted", "sentence": {"en": "Again.", "zh": "再。"}}, whole)
    for number in range(2, 30):
        due = time.mktime((FIRST + timedelta(days=number)).timetuple())
        assert tell_missed(ground.store, "nightly", due, zone_of("UTC"), "UTC")
    settled(ground)
    assert ground.gc("--keep-pages", "2").code == 0
    assert not short(ground), "a channel that rested has its newest two nights still"
    assert ground.gc("--keep-pages", "1").code == 0
    assert short(ground) == {0} and not short(ground, "weekly")


def test_a_night_that_goes_on_or_of_which_something_was_said_lately_stays_whole(
    folder_ground: Ground,
) -> None:
    ground = folder_ground
    tell_end(run_of(ground, 0), StageEnd(task="resolve", state=DONE), by_chat=False)
    tell_begin(run_of(ground, 0), StageEnd(task="train", state="working", key="0" * 64))
    words = Words("train failed: no space left.", "train 失败。")
    tell_end(run_of(ground, 1), StageEnd(task="train", state=FAILED, sentence=words, lines=("x" * 700,) * 9))
    tell(ground, 2)
    tell(ground, 9)
    settled(ground)
    shown = ground.tool("gc", "--older-than", "1h", "--keep-pages", "1", "--explain").out
    assert "keep 2 old page(s) of nights whole: something was said of its night lately" in shown
    assert "keep 1 old page(s) of nights whole: its night goes on" in shown
    assert ground.gc("--keep-pages", "1", age="1h").code == 0 and not short(ground)
    for name in (page(2), record_name("nightly", "r2")):
        os.utime(Path(ground.uri) / name, (time.time() - 7200,) * 2)
    assert ground.gc("--keep-pages", "1", age="1h").code == 0 and short(ground) == {2}
    assert ground.gc("--keep-pages", "1").code == 0 and short(ground) == {1, 2}


def test_a_damaged_record_keeps_its_page_and_stops_nothing(
    folder_ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    ground = folder_ground
    for number in range(4):
        tell(ground, number)
    (Path(ground.uri) / record_name("nightly", "r0")).write_text("{")
    (Path(ground.uri) / record_name("nightly", "r1")).unlink()
    settled(ground)
    assert ground.gc("--keep-pages", "1").code == 0
    assert short(ground) == {2}
    assert f"{page(0)} stays whole: " in caplog.text and "runs/r0.json: damaged" in caplog.text
    assert ground.tool("verify").code == 65


def test_a_damaged_history_keeps_everything(folder_ground: Ground) -> None:
    ground = folder_ground.chain()
    tell(ground, 0)
    tell(ground, 1)
    settled(ground)
    (Path(ground.uri) / "pointers/demo/history/000001.json").write_text("{")
    assert ground.gc("--keep-pages", "1").code == 65
    assert not short(ground)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "none", "", "1e99"])
def test_a_number_that_says_nothing_is_refused(folder_ground: Ground, value: str) -> None:
    assert folder_ground.tool("gc", f"--keep-pages={value}").code == 64


def gc_that_kills_itself(uri: str, moment: int) -> None:
    die_at_write(moment)
    sys.exit(Ground(uri).gc("--keep-pages", "1").code)


def test_killed_before_any_write_the_next_gc_or_rebuild_comes_to_the_same_end(ground: Ground) -> None:
    """Before each of its first writes in turn, until it comes to its end: what one left, the next ends."""
    for number in range(4):
        tell(ground, number)
    settled(ground)
    context, moment = multiprocessing.get_context("fork"), 0
    kills = 0
    while True:
        process = context.Process(target=gc_that_kills_itself, args=(ground.uri, moment % 4))
        process.start()
        process.join(120)
        if process.exitcode == 0:
            break
        assert process.exitcode == -9 and ground.tool("verify").code == 0
        kills, moment = kills + 1, moment + 1
    assert kills >= 3 and short(ground) == {0, 1, 2}
    end = documents(ground)
    assert ground.gc("--keep-pages", "1").code == 0
    assert nights_tool(["rebuild", "--store", ground.uri, "--channel", "nightly"]) == 0
    assert documents(ground) == end


def test_rebuild_ends_what_a_killed_gc_began_and_makes_no_page_whole(folder_ground: Ground) -> None:
    ground = folder_ground
    tell(ground, 0)
    tell(ground, 1)
    settled(ground)
    process = multiprocessing.get_context("fork").Process(target=gc_that_kills_itself, args=(ground.uri, 1))
    process.start()
    process.join(60)
    assert process.exitcode == -9 and not short(ground)
    assert nights_tool(["rebuild", "--store", ground.uri, "--channel", "nightly"]) == 0
    assert short(ground) == {0}


def gc_of_its_own(uri: str) -> None:
    sys.exit(Ground(uri).gc("--keep-pages", "1").code)


def test_two_at_once_come_to_the_end_of_one(ground: Ground) -> None:
    for number in range(6):
        tell(ground, number)
    settled(ground)
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=gc_of_its_own, args=(ground.uri,)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
        assert process.exitcode == 0
    assert short(ground) == {0, 1, 2, 3, 4}
    serials = {json.loads(ground.store.read(record_name("nightly", f"r{n}"))[0])["serial"] for n in range(5)}
    assert len(serials) == 1, "each page was made short once"


def test_a_channel_with_a_pointer_moved_by_hand_counts_it_as_champion(folder_ground: Ground) -> None:
    """An approval that was killed between pointer and history: the night is held, and its model is served."""
    ground = folder_ground
    model = ground.commit("train", seed=1)
    move_pointer(ground.store, "nightly", "champion", model.reference)
    tell(ground, 0, "held", train=model)
    tell(ground, 1)
    settled(ground)
    assert ground.gc("--keep-pages", "1").code == 0 and not short(ground)
