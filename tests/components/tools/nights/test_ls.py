"""`yanmo nights ls`: what a person and a script read of a channel's newest nights."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from told import Told

from yanmo.nights.lists import NEWEST
from yanmo.nights.night import Words
from yanmo.nights.record import FAILED, StageEnd
from yanmo.nights.telling import tell_end
from yanmo.tools.nights.command import main


def test_a_person_reads_how_each_night_ended_the_newest_first(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    told.verdict(0, "promoted")
    told.failure(1)
    told.verdict(2, channel="weekly")
    assert main(["ls", "--store", told.uri, "--channel", "nightly"]) == 0
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert lines[0] == ["date", "night", "bits", "took", "run", "why"]
    assert lines[1][:5] == ["2026-01-21", "failed", "-", "-", "r1"] and "no space left" in said
    assert lines[2][:3] == ["2026-01-20", "promoted", "8.125"] and "2 min 05 s" in said
    assert said.endswith(f"all of them: {told.store.uri}/nights/nightly/index.html\n")
    assert "r2" not in said, "another channel's"


def test_a_script_reads_each_row_and_the_address_of_its_page(
    told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told.verdict(0)
    told.failure(1)
    monkeypatch.setenv("YANMO_PAGES_URL", "https://pages.example/yanmo")
    assert main(["ls", "--store", told.uri, "--channel", "nightly", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["channel"] == "nightly"
    assert [night["state"] for night in found["nights"]] == ["failed", "not promoted"]
    page = "https://pages.example/yanmo/nights/nightly/2026-01-20-r0.html"
    assert found["nights"][1]["page"] == page and found["nights"][1]["bits"] == 8.125


def test_a_channel_without_nights_is_no_fault(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--store", told.uri, "--channel", "nightly"]) == 0
    assert "channel nightly of" in (said := capsys.readouterr().out) and "has no night yet" in said
    assert main(["ls", "--store", told.uri, "--channel", "nightly", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"channel": "nightly", "nights": []}


def test_years_of_nights_are_as_many_lines_as_the_index_has(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(NEWEST + 3):
        told.failure(number)
    assert main(["ls", "--store", told.uri, "--channel", "nightly"]) == 0
    dates = [line for line in capsys.readouterr().out.splitlines() if line.startswith("20")]
    assert len(dates) == NEWEST and dates == sorted(dates, reverse=True)


def test_what_a_night_says_cannot_write_over_a_terminal(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    words = Words("\x1b[2J\u202egone\r\nfine", "\x07好")
    tell_end(told.run(0), StageEnd(task="train", state=FAILED, sentence=words))
    assert main(["ls", "--store", told.uri, "--channel", "nightly"]) == 0
    said = capsys.readouterr().out
    assert not {"\x1b", "\u202e", "\r", "\x07"} & set(said) and "gone" in said


@pytest.mark.parametrize(
    ("words", "code"),
    [(("--channel", "../x"), 64), (("--channel", "a/b"), 64), (("--chanel", "nightly"), 64)],
)
def test_a_channel_that_cannot_be_is_refused(told: Told, words: tuple[str, ...], code: int) -> None:
    assert main(["ls", "--store", told.uri, *words]) == code


def test_a_damaged_index_is_named_with_what_to_do(told: Told) -> None:
    """As a process of its own, as a person calls it."""
    told.verdict(0)
    (told.folder / "nights/nightly/index.json").write_bytes(b"{")
    command = [sys.executable, "-m", "yanmo.cli", "nights", "ls", "--store", told.uri]
    done = subprocess.run([*command, "--channel", "nightly"], capture_output=True, text=True)
    assert done.returncode == 65 and not done.stdout
    assert "nights/nightly/index.json: damaged" in done.stderr and "yanmo nights rebuild" in done.stderr
    (told.folder / "nights/nightly/index.json").unlink()
    assert main(["rebuild", "--store", told.uri, "--channel", "nightly"]) == 0
    done = subprocess.run([*command, "--channel", "nightly"], capture_output=True, text=True)
    assert done.returncode == 0 and "2026-01-20" in done.stdout
