"""`yanmo channel licenses | takedown`: what stays on record, and what a kill or two at once leave."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers.s3 import S3Server

from yanmo.store.channel.licenses import read_allowed, read_states
from yanmo.store.channel.takedown import read_takedown, read_takedowns
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store
from yanmo.tools.channel.command import main
from yanmo.tools.store.command import main as store_tool

ONE, TWO, THREE = ("1" * 64, "2" * 64, "3" * 64)
BY = ("--who", "li", "--why")


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def bucket(s3_server: S3Server, s3_place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "scratch"))
    return f"s3://{s3_place}/{tmp_path.name}"


def channel(place: str, *words: str, name: str = "dev") -> int:
    return main([words[0], "--store", place, "--channel", name, *words[1:]])


def test_a_text_comes_off_the_list_and_who_did_that_and_why_stays(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert channel(place, "takedown", ONE, TWO, *BY, "the author asked") == 0
    assert channel(place, "takedown", "--lift", ONE, "--who", "wu", "--why", "another author") == 0
    said = capsys.readouterr().out
    assert "1 of 1 came off the takedown list of channel dev" in said and "yanmo promote rollback" in said
    store = open_store(place)
    assert list(read_takedown(store, "dev")) == [TWO]
    (one,) = read_takedowns(store, "dev").lifted
    assert (one.who, one.why, one.takedown.who, one.takedown.why) == (
        "wu", "another author", "li", "the author asked",
    )  # fmt: skip
    assert channel(place, "takedown") == 0
    said = capsys.readouterr().out
    assert "1 text on the takedown list" in said and f"lifted: {ONE}" in said
    assert "by wu: another author" in said and "by li: the author asked" in said
    assert channel(place, "takedown", ONE, *BY, "after all") == 0, "it may be taken down again"
    assert list(read_takedown(store, "dev")) == [TWO, ONE] and len(read_takedowns(store, "dev").lifted) == 1
    assert channel(place, "takedown", "--lift", ONE, *BY, "no") == 0
    capsys.readouterr()
    assert channel(place, "takedown", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["takedown"]["why"] for each in document["lifted"]] == ["the author asked", "after all"]
    assert [each["id"] for each in document["texts"]] == [TWO]


def test_lifting_twice_is_done_once_and_keeps_the_first_signature(place: str, capsys: Any) -> None:
    channel(place, "takedown", ONE, *BY, "x")
    assert channel(place, "takedown", "--lift", ONE, *BY, "a mistake") == 0
    assert channel(place, "takedown", "--lift", ONE, "--who", "wu", "--why", "late") == 0
    assert "0 of 1 came off" in capsys.readouterr().out
    (one,) = read_takedowns(open_store(place), "dev").lifted
    assert (one.who, one.why) == ("li", "a mistake")


def test_one_that_was_never_on_the_list_is_refused_and_the_others_stay(place: str, caplog: Any) -> None:
    channel(place, "takedown", ONE, *BY, "x")
    assert channel(place, "takedown", "--lift", ONE, TWO, *BY, "y") == 65
    assert f"{TWO} was never on the takedown list of channel 'dev'" in caplog.text
    assert list(read_takedown(open_store(place), "dev")) == [ONE]
    assert channel(place, "takedown", "--lift", ONE, *BY, "y", name="other") == 65


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lift",), "--lift: which? Give the ids"),
        (("--lift", ONE), "--why is missing: say for later readers why these texts come off the list"),
        (("--lift", "123", "--why", "x"), "expected an id of 64 digits"),
    ],
)
def test_what_is_unclear_is_refused(place: str, words: tuple[str, ...], said: str, caplog: Any) -> None:
    assert channel(place, "takedown", *words) == 64
    assert said in caplog.text


def test_the_version_before_reads_a_list_from_which_nothing_was_lifted(place: str) -> None:
    """And it refuses one that it would write without who lifted what."""
    document = Path(place) / "pointers/dev/records/takedown.json"
    channel(place, "takedown", ONE, *BY, "x")
    values = json.loads(document.read_text(encoding="utf-8"))
    assert values["schema"] == "yanmo.takedown/1" and "lifted" not in values
    channel(place, "takedown", "--lift", ONE, *BY, "y")
    assert json.loads(document.read_text(encoding="utf-8"))["schema"] == "yanmo.takedown/2"
    assert store_tool(["verify", "--store", place]) == 0


@pytest.mark.parametrize(
    "lifted", [3, [1], [{"who": "x"}], [{"takedown": {}, "who": 1, "why": "", "when": ""}]]
)
def test_a_damaged_record_of_lifting_is_named(place: str, lifted: Any, caplog: Any) -> None:
    path = Path(place) / "pointers/dev/records/takedown.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"schema": "yanmo.takedown/2", "entries": [], "lifted": lifted}))
    assert channel(place, "takedown") == 65
    assert "takedown.json: damaged" in caplog.text


WRITES = ("os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "http.client.send")


def die_at(moment: int) -> None:
    """End this process as by kill -9 before its write number `moment`: of a file, or to a server."""
    left = moment

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        is_write = event in WRITES or (event == "open" and int(args[2] or 0) & (os.O_WRONLY | os.O_RDWR))
        if is_write:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(hook)


def killed(moment: int, run: Callable[[], int]) -> int:
    """The exit code of a command in a process of its own, which dies at its write number `moment`."""

    def child() -> None:
        die_at(moment)
        os._exit(run())

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def state(store: ObjectStore, name: str) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    """What the lists say: texts, who lifted which, and every list of licences that there was."""
    found, states = read_takedowns(store, name), read_states(store, name)
    return sorted(found.by_id), [(o.takedown.id, o.who) for o in found.lifted], [s.shown for s in states]


COMMANDS = {
    "takedown": ("takedown", TWO, THREE, *BY, "x"),
    "lift": ("takedown", "--lift", ONE, *BY, "a mistake"),
    "licenses": ("licenses", "--set", "MIT,GPL-3.0", *BY, "counsel"),
}
AFTER = {
    "takedown": ([ONE, TWO, THREE], [], ["MIT"]),
    "lift": ([], [(ONE, "li")], ["MIT"]),
    "licenses": ([ONE], [], ["MIT", "GPL-3.0, MIT"]),
}
BEFORE = ([ONE], [], ["MIT"])


def kill_everywhere(place: str, what: str) -> int:
    """Kill the command at each of its writes in turn, each time in a new channel; how many there are."""
    for moment in range(200):
        name = f"{what}-{moment}"
        assert channel(place, "takedown", ONE, *BY, "x", name=name) == 0
        assert channel(place, "licenses", "--set", "MIT", *BY, "x", name=name) == 0
        code = killed(moment, lambda name=name: channel(place, *COMMANDS[what], name=name))  # type: ignore[misc]
        store = open_store(place)
        assert state(store, name) in (BEFORE, AFTER[what]), "all of it or nothing"
        assert channel(place, *COMMANDS[what], name=name) == 0, "the same command finishes it"
        assert state(store, name) == AFTER[what], "once"
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert store_tool(["verify", "--store", place]) == 0
    return moment


@pytest.mark.parametrize("what", COMMANDS)
def test_killed_at_any_write_the_same_command_finishes_it(place: str, what: str) -> None:
    assert kill_everywhere(place, what) >= 3, "a temporary file, its name, what is beside it"


@pytest.mark.parametrize("what", COMMANDS)
def test_killed_at_any_request_to_s3_the_same_command_finishes_it(bucket: str, what: str) -> None:
    assert kill_everywhere(bucket, what) >= 2, "read and write"


def at_once(place: str) -> None:
    """Ten people take down a text each, five of them lift it again, two set the licences."""

    def person(number: int) -> None:
        one = f"{number:064x}"
        codes = [channel(place, "takedown", one, "--who", f"p{number}", "--why", "x")]
        if number % 2:
            codes.append(channel(place, "takedown", "--lift", one, "--who", f"p{number}", "--why", "y"))
        if number < 2:
            codes.append(channel(place, "licenses", "--set", f"MIT,L{number}", *BY, "z"))
        os._exit(max(codes))

    context = multiprocessing.get_context("fork")
    people = [context.Process(target=person, args=(number,)) for number in range(10)]
    for one in people:
        one.start()
    for one in people:
        one.join()
    assert [one.exitcode for one in people] == [0] * 10
    store = open_store(place)
    found = read_takedowns(store, "dev")
    assert sorted(found.by_id) == [f"{n:064x}" for n in range(0, 10, 2)]
    assert sorted(each.who for each in found.lifted) == [f"p{n}" for n in range(1, 10, 2)]
    allowed = read_allowed(store, "dev")
    assert allowed and len(read_states(store, "dev")) == 2 and allowed.names[0] in ("L0", "L1")


def test_of_ten_people_at_once_nobodys_change_is_lost(place: str) -> None:
    at_once(place)


def test_of_ten_people_at_once_nobodys_change_is_lost_on_s3(bucket: str) -> None:
    at_once(bucket)
