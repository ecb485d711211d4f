"""A file of schedules: what is wrong with it is refused before anything is asked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from yanmo.common.errors import UsageError
from yanmo_pipelines.cluster.schedules.file import Schedule, read_schedules, shown_time

Read = Callable[[str], dict[str, Schedule]]
NIGHT = """\
timezone: Asia/Shanghai
schedules:
  nightly:
    cron: "0 21 * * *"
    night: 21:00-08:00
    set: {train_steps: 400, train.layers: 4}
"""


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """The schedules of a file with this text."""
    monkeypatch.chdir(tmp_path)

    def schedules_in(text: str) -> dict[str, Schedule]:
        Path("night.yaml").write_text(text, encoding="utf-8")
        return read_schedules("night.yaml")

    return schedules_in


def one(line: str, rest: str = "") -> str:
    return f"schedules:\n  nightly:\n    cron: {line}\n{rest}"


def test_a_schedule_says_when_it_fires_in_the_teams_zone(read: Read) -> None:
    (nightly,) = read(NIGHT).values()
    since = datetime(2026, 11, 23, 13, 30, tzinfo=UTC).timestamp()
    assert [shown_time(at, nightly.zone) for at in nightly.next_times(since)] == [
        "Tue 2026-11-24 21:00 +0800",
        "Wed 2026-11-25 21:00 +0800",
        "Thu 2026-11-26 21:00 +0800",
    ]
    assert nightly.settings == {
        "train.when_busy": "end",
        "train.night": "21:00-08:00",
        "train.timezone": "Asia/Shanghai",
        "train_steps": "400",
        "train.layers": "4",
    }


def test_a_schedule_that_names_no_channel_has_that_of_the_pipelines_form(read: Read) -> None:
    for line, channel in (
        ("", "main"),
        ("    pipeline: chat\n", "chat"),
        ("    pipeline: data_only\n", "main"),
    ):
        assert read(one("0 21 * * *", line))["nightly"].options.channel == channel
    named = read(one("0 21 * * *", "    pipeline: chat\n    channel: b\n"))["nightly"]
    assert named.options.channel == "b"


def test_one_of_the_file_may_wait_in_the_place_of_ending(read: Read) -> None:
    (found,) = read(one("0 21 * * *", "    set: {train.when_busy: wait}\n")).values()
    assert found.settings["train.when_busy"] == "wait"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a YAML file of schedules"),
        ("- a\n", "expected a YAML file of schedules"),
        ("schedules: {}\n", "no schedule in it; expected at least one"),
        ("schedule:\n  a: {cron: 0 21 * * *}\n", "unknown key schedule; did you mean schedules?"),
        ("schedules:\n  a:\n", "schedule a: expected `cron:`"),
        ("schedules:\n  a: {channel: main}\n", "cron is missing"),
        (one("0 21 * * *", "    timeZone: Asia/Shanghai\n"), "unknown key timeZone; did you mean timezone?"),
        (one("0 21 * * *", "    suspended: true\n"), "unknown key suspended; did you mean suspend?"),
        (one("0 21 * * *", "    timezone: Asia/Shangai\n"), "'Asia/Shangai': not a time zone"),
        (one("0 21 * * *", "    timezone: ../../etc/passwd\n"), "not a time zone"),
        (one("0 21 * * *", "    suspend: maybe\n"), "suspend: maybe: expected true or false"),
        (one("0 21 * * *", "    set: [a]\n"), "set: expected a mapping"),
        (one("0 21 * * *", "    set: {a: {b: c}}\n"), "set: a: expected a single value"),
        (one("0 21 * * *", "    channel: a/b\n"), "channel 'a/b': expected up to 100 letters"),
        (one("0 21 * * *", "    night: 21:00-08:00\n    set: {train.night: 1-2}\n"), "is said by night"),
        (one("0 21 30 2 *"), "never fires: no month has such a day"),
        (one("0 21 * *"), "expected minute, hour, day, month and day of the week"),
        ("schedules:\n  a:\n    cron: */5 * * * *\n", "stands in quotation marks"),
        ("schedules:\n  Nightly: {cron: 0 21 * * *}\n", "schedule Nightly: expected a name of at most 36"),
        ("schedules:\n  " + "a" * 37 + ": {cron: 0 21 * * *}\n", "expected a name of at most 36"),
        ("schedules:\n  ../x: {cron: 0 21 * * *}\n", "expected a name of at most 36"),
        ("schedules:\n  a: {cron: 0 21 * * *}\n  a: {cron: 0 1 * * *}\n", "'a' is named twice"),
        ("schedules: {a: &a [*a]}\n", "expected"),
        ("a: " * 5000, "expected a YAML file of schedules"),
    ],
)
def test_what_is_wrong_is_named_with_what_was_expected(read: Read, text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(text)
    assert said in str(refused.value) and str(refused.value).startswith("night.yaml")
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 700


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_schedules(str(tmp_path / "none.yaml"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="in UTF-8"):
        read_schedules(str(tmp_path / "bytes"))


def two(first: str, second: str, more: str = "", zone: str = "UTC") -> str:
    return (
        f"schedules:\n  a: {{cron: '{first}', channel: n}}\n"
        f"  b: {{cron: '{second}', channel: n, timezone: {zone}{more}}}\n"
    )


def test_two_schedules_of_a_channel_may_not_fire_at_once(read: Read) -> None:
    for text in (two("0 21 * * *", "0 21 1 * *"), two("0 13 * * *", "0 21 * * *", zone="Asia/Shanghai")):
        with pytest.raises(UsageError, match="schedules a and b both start a run of channel n on "):
            read(text)
    assert len(read(two("0 21 * * 1-5", "0 9 * * 0,6"))) == 2
    assert len(read(two("0 21 * * *", "0 21 * * *", ", suspend: true"))) == 2
    assert len(read(two("0 21 * * *", "0 21 * * *", ", store: 's3://b/p'"))) == 2
