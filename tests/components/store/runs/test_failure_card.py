"""A failure's card: its lines, and what the store keeps of it."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.common.errors import DataError, LeaseLost, StorageError, WorkerLost
from yanmo.store.opening import open_store
from yanmo.store.runs import failure_card
from yanmo.store.runs.failure_card import Card, Details, attach, details_of, keep_card, read_card

DETAILS = Details(
    where="rank 1 of 2, in training step 5",
    why="was killed by SIGKILL",
    others=("rank 0 lost it, in training step 5",),
    checkpoint="step 4",
    saved_at=1_000_000_000.0,
    is_resumable=True,
)
TEXT = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=3000)


def card(**changes: object) -> Card:
    error = WorkerLost("rank 1 of 2 was killed")
    attach(error, DETAILS)
    values = vars(Card.of("train", error, "yanmo train --steps=9", "5a1b"))
    return Card(**{**values, "made_at": "2001-09-09T01:47:15+00:00", **changes})


def test_a_card_says_which_why_what_is_kept_and_how_it_goes_on() -> None:
    assert card().lines() == [
        "train failed with exit code 75 (may pass: try again)",
        "which: rank 1 of 2, in training step 5",
        "why: was killed by SIGKILL",
        "rank 0 lost it, in training step 5",
        "last good checkpoint: step 4, 35 s old",
        "to go on: yanmo train --steps=9",
    ]


def test_a_stage_without_ranks_has_the_same_card_without_them() -> None:
    plain = Card.of("curate", DataError("line 3: not a poem"), "yanmo curate")
    assert plain.lines() == [
        "curate failed with exit code 65 (an input is wrong)",
        "why: line 3: not a poem",
        "to run it again, once that is mended: yanmo curate",
    ]
    assert plain.details() == [], "its error's own line in the log says it all"


def test_details_travel_with_an_error_and_the_one_raised_from_it() -> None:
    inner, outer = ValueError("x"), RuntimeError("y")
    attach(inner, DETAILS)
    outer.__cause__ = inner
    assert details_of(outer) == DETAILS and details_of(ValueError("z")) is None


def _written(made: Card) -> bytes:
    return failure_card.CARD.to_json(made)


@given(TEXT, TEXT, TEXT)
def test_whatever_the_words_are_a_card_is_short_whole_and_read_again(
    why: str, other: str, command: str
) -> None:
    error = StorageError(why)
    attach(error, Details(why=why, others=(other,)))
    made = Card.of("toy", error, command)
    assert all(len(line.splitlines()) <= 1 for line in made.others) and len(made.why) <= 600
    assert failure_card.CARD.parse(_written(made), "here") == made


def test_no_card_holds_a_password() -> None:
    error = StorageError("http://user:secret@host/x refused")
    attach(error, Details(others=("http://user:secret@host",)))
    made = Card.of("toy", error, "yanmo toy --endpoint=http://user:secret@host")
    assert b"secret" not in _written(made)


def test_the_last_card_of_a_key_is_kept_and_a_lost_lease_writes_none(tmp_path: Path) -> None:
    store, key = open_store(str(tmp_path)), "0" * 64
    assert read_card(store, "train", key) is None
    for number in range(2):
        keep_card(store, key, card(why=f"{number}"), WorkerLost("x"))
    keep_card(store, key, card(why="late"), LeaseLost("another run has it"))
    assert read_card(store, "train", key) == card(why="1")
    store.replace(name := failure_card.failure_name("train", key), b"{", store.read(name)[1])
    assert read_card(store, "train", key) is None, "a damaged record ends nothing"
    keep_card(store, key, card(), WorkerLost("x"))
    assert read_card(store, "train", key) is not None


@pytest.mark.parametrize("damage", [{"others": [1]}, {"saved_at": math.nan}, {"made_at": "x"}], ids=str)
def test_a_record_of_failures_with_other_values_ends_nothing(
    tmp_path: Path, damage: dict[str, object]
) -> None:
    store, key = open_store(str(tmp_path)), "0" * 64
    value = {"schema": failure_card.CARD.schema, **dataclasses.asdict(card()), **damage}
    store.create(failure_card.failure_name("train", key), json.dumps(value).encode())
    assert read_card(store, "train", key) is None


def test_a_cause_with_half_a_character_is_recorded_and_no_error_of_its_own(tmp_path: Path) -> None:
    store, key = open_store(str(tmp_path)), "0" * 64
    keep_card(store, key, card(why="line 3 of \udcff.txt"), WorkerLost("x"))
    assert (kept := read_card(store, "train", key)) and kept.why == "line 3 of ?.txt"
