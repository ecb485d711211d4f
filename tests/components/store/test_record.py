"""Records: what comes back, what is refused, and who wins."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.common.errors import DataError
from yanmo.nights.record import NIGHT, NightRecord, Verdict
from yanmo.store.file_store import FileStore
from yanmo.store.record import Record
from yanmo.store.runs.failure_card import Card
from yanmo.store.runs.unfinished import Training, Try


@dataclass(frozen=True)
class Inner:
    name: str
    share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Outer:
    kind: Literal["a", "b"] = "a"
    count: int | None = None
    inner: tuple[Inner, ...] = ()
    named: dict[str, Inner] = field(default_factory=dict)
    free: dict[str, Any] = field(default_factory=dict)
    options: dict[str, str | int | float | bool] = field(default_factory=dict)


RECORD = Record("yanmo.tests/1", Outer, "mend it")
inner = st.builds(Inner, name=st.text(st.characters(exclude_categories=["Cs"])), share=st.floats(0, 1))
scalars = st.text(max_size=3) | st.integers() | st.booleans() | st.floats(0, 1)
outer = st.builds(
    Outer,
    kind=st.sampled_from(["a", "b"]),
    count=st.none() | st.integers(),
    inner=st.lists(inner).map(tuple),
    named=st.dictionaries(st.text(max_size=3), inner),
    options=st.dictionaries(st.text("abc"), scalars.filter(lambda v: v == v)),
)


@given(outer)
def test_what_was_written_comes_back(value: Outer) -> None:
    found = RECORD.parse(RECORD.to_json(value), "here")
    assert found == value
    assert {k: type(v) for k, v in found.options.items()} == {k: type(v) for k, v in value.options.items()}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "Expecting"),
        ("[]", "expected a JSON object"),
        ("{}", "expected 'yanmo.tests/1'"),
        ('{"schema": "yanmo.tests/1", "later": 1}', "unknown field later"),
        ('{"schema": "yanmo.tests/1", "inner": [{}]}', r"inner\[0\].lacks name"),
        ('{"schema": "yanmo.tests/1", "inner": [{"name": 1}]}', r"inner\[0\].name: expected str, found 1"),
        ('{"schema": "yanmo.tests/1", "count": true}', "count: expected"),
        ('{"schema": "yanmo.tests/1", "kind": "c"}', "kind: expected"),
        ('{"schema": "yanmo.tests/1", "options": {"x": []}}', "options.x: expected"),
    ],
)
def test_what_is_damaged_is_neither_read_nor_written_over(store: FileStore, text: str, words: str) -> None:
    store.create("x.json", text.encode())
    for look in (
        lambda: RECORD.read(store, "x.json"),
        lambda: RECORD.change(store, "x.json", lambda found: Outer(count=1)),
        lambda: RECORD.create(store, "x.json", Outer()),
    ):
        with pytest.raises(DataError, match=rf"x\.json: damaged: .*{words}.*; mend it"):
            look()
    assert store.read("x.json")[0] == text.encode()


def test_one_of_another_version_is_refused_and_not_called_damaged(store: FileStore) -> None:
    store.create("x.json", b'{"schema": "yanmo.tests/2"}')
    with pytest.raises(DataError, match="another version") as refused:
        RECORD.read(store, "x.json")
    assert "damaged:" not in str(refused.value)


def test_the_first_one_created_counts(store: FileStore) -> None:
    assert RECORD.read(store, "x.json") is None
    assert RECORD.create(store, "x.json", Outer(count=1)) == Outer(count=1)
    assert RECORD.create(store, "x.json", Outer(count=2)) == Outer(count=1)
    assert RECORD.write(store, "x.json", Outer(count=3)) == RECORD.read(store, "x.json")


def test_a_change_that_meets_another_is_made_upon_it(store: FileStore) -> None:
    """Between its reading and its writing somebody else writes: both count, in one order."""
    rivals = iter(range(3))

    def with_mark(found: Outer | None, mark: str) -> Outer:
        return replace(found or Outer(), free={**(found or Outer()).free, mark: 1})

    def add(found: Outer | None) -> Outer:
        for number in rivals:
            RECORD.change(store, "x.json", partial(with_mark, mark=f"rival {number}"))
            break
        return with_mark(found, "mine")

    made = RECORD.change(store, "x.json", add)
    assert made == RECORD.read(store, "x.json")
    assert made is not None and set(made.free) == {"mine", "rival 0", "rival 1", "rival 2"}
    version = store.read("x.json")[1]
    RECORD.change(store, "x.json", lambda found: found)
    assert store.read("x.json")[1] == version, "nothing is written for nothing"


def _card(made_at: str) -> Card:
    return Card(stage="train", exit_code=1, why="x", made_at=made_at)


@pytest.mark.parametrize("when", ["", "x", "2026-13-01T00:00:00+00:00"])
def test_a_time_that_is_none_is_damage_in_every_record(when: str) -> None:
    night = {"channel": "a", "run_id": "r", "timezone": "UTC", "last": "promote"}
    good = "2026-11-28T21:00:00+00:00"
    training = Training(key="a" * 64, revision=1, options={}, execution={}, inputs={}, run_id="r")
    with pytest.raises(ValueError):
        _card(when)
    with pytest.raises(ValueError):
        replace(training, tries=(Try(run_id="r", at=when, checkpoint=""),))
    for began, changed in ((when, good), (good, when)):
        with pytest.raises(ValueError):
            NightRecord(**night, began=began, changed=changed)
    assert NightRecord(**night, began=good, changed=good) and _card(good).lines()


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400])
def test_a_number_beyond_all_floats_is_damage(number: str) -> None:
    data = NIGHT.to_json(
        NightRecord(
            channel="a", run_id="r", timezone="UTC", last="promote",
            began="2026-11-28T21:00:00+00:00", changed="2026-11-28T21:00:00+00:00", verdict=Verdict(bits=1.5),
        )
    )  # fmt: skip
    assert NIGHT.parse(data, "here").verdict.bits == 1.5
    with pytest.raises(DataError, match="damaged"):
        NIGHT.parse(data.replace(b"1.5", number.encode()), "here")


def test_no_record_is_written_that_its_reader_refuses() -> None:
    with pytest.raises(ValueError):
        NIGHT.to_json(
            NightRecord(
                channel="a", run_id="r", timezone="UTC", last="promote",
                began="2026-11-28T21:00:00+00:00", changed="2026-11-28T21:00:00+00:00",
                verdict=Verdict(bits=float("nan")),
            )
        )  # fmt: skip
