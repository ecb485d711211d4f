"""Pointers move by compare-and-swap and nothing else."""

from __future__ import annotations

import threading

import pytest
from toy_outputs import recipe, write_text

import yanmo.balance.config as balance
import yanmo.curate.config as curate
import yanmo.evaluate.config as evaluate
import yanmo.promote.config as promote
import yanmo.tokenize.config as tokenize
import yanmo.train.config as train
from yanmo.common.errors import DataError, StorageError, UsageError
from yanmo.options.fields import option_fields
from yanmo.store.commit import commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Reference
from yanmo.store.objects import Changed
from yanmo.store.output import Output
from yanmo.store.pointers import (
    POINTED,
    create_pointer,
    move_pointer,
    open_named,
    pointer_name,
    read_pointer,
    swap_pointer,
)


@pytest.fixture
def other(store: FileStore) -> Reference:
    made = commit_once(store, recipe(other=1), write_text("别"))
    assert made is not None
    return made.reference


def test_a_pointer_that_was_never_set_is_none(store: FileStore) -> None:
    assert read_pointer(store, "dev", "toy") is None


def test_a_pointer_moves_and_channels_are_apart(store: FileStore, output: Output, other: Reference) -> None:
    move_pointer(store, "dev", "toy", output.reference)
    move_pointer(store, "nightly", "toy", other)
    assert read_pointer(store, "dev", "toy") == output.reference
    move_pointer(store, "dev", "toy", other)
    assert read_pointer(store, "dev", "toy") == other


def test_the_first_creator_of_a_pointer_decides_it(
    store: FileStore, output: Output, other: Reference
) -> None:
    assert create_pointer(store, "dev", "first", output.reference) == output.reference
    assert create_pointer(store, "dev", "first", other) == output.reference


def test_of_two_promotions_from_the_same_champion_one_wins(
    store: FileStore, output: Output, other: Reference
) -> None:
    assert swap_pointer(store, "dev", "best", None, output.reference)
    assert not swap_pointer(store, "dev", "best", None, other), "there is a champion already"
    won: list[int] = []

    def promote(number: int) -> None:
        if swap_pointer(store, "dev", "best", output.reference, other):
            won.append(number)

    threads = [threading.Thread(target=promote, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and read_pointer(store, "dev", "best") == other


def test_a_swap_against_a_removed_pointer_does_nothing(
    store: FileStore, output: Output, other: Reference
) -> None:
    assert not swap_pointer(store, "dev", "best", output.reference, other)
    assert read_pointer(store, "dev", "best") is None


def test_a_pointer_that_never_stands_still_ends_in_try_again(
    store: FileStore, output: Output, other: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    move_pointer(store, "dev", "toy", output.reference)

    def moved(*args: object) -> str:
        raise Changed("again")

    monkeypatch.setattr(FileStore, "replace", moved)
    with pytest.raises(StorageError, match="changed under 30 tries"):
        move_pointer(store, "dev", "toy", other)


def test_a_damaged_pointer_is_refused_and_the_next_success_mends_it(store: FileStore, output: Output) -> None:
    store.create("pointers/dev/toy.json", b'{"schema":')
    with pytest.raises(DataError, match=r"pointers/dev/toy\.json: not a reference"):
        read_pointer(store, "dev", "toy")
    move_pointer(store, "dev", "toy", output.reference)
    assert read_pointer(store, "dev", "toy") == output.reference


def test_a_pointer_of_another_version_is_neither_believed_nor_overwritten(
    store: FileStore, output: Output
) -> None:
    data = b'{"schema": "yanmo.reference/2", "stage": "toy"}'
    store.create("pointers/dev/toy.json", data)
    for use in (read_pointer, lambda *where: move_pointer(*where, output.reference)):
        with pytest.raises(DataError, match=r"pointers/dev/toy\.json: .*another version of Yanmo"):
            use(store, "dev", "toy")
    assert store.read("pointers/dev/toy.json")[0] == data


@pytest.mark.parametrize("name", sorted(POINTED))
def test_a_pointer_to_an_output_of_another_stage_is_refused(
    store: FileStore, output: Output, name: str
) -> None:
    move_pointer(store, "dev", name, output.reference)
    with pytest.raises(DataError, match=rf"{name}\.json: names toy/.*expected an output of {POINTED[name]}:"):
        read_pointer(store, "dev", name)
    with pytest.raises(DataError, match="exchanged"):
        swap_pointer(store, "dev", name, output.reference, output.reference)


def test_the_pointers_of_every_input_of_every_stage_are_known() -> None:
    """A pointer that is not in POINTED is not checked: add it there."""
    followed = {
        name
        for stage in (balance, curate, evaluate, promote, tokenize, train)
        for field in option_fields(stage.STAGE.config, "input")
        for name in field.metadata["stages"]
    }
    made = {n for s in (balance, curate, evaluate, promote, tokenize, train) for n in (s.STAGE.name,)}
    assert followed | made <= set(POINTED)


@pytest.mark.parametrize("channel", ["", "..", "a/b", "诗", "x" * 101, "a\n"])
def test_a_hostile_channel_is_a_usage_error(channel: str) -> None:
    with pytest.raises(UsageError, match=r"--channel .*expected up to 100 letters"):
        pointer_name(channel, "toy")
    with pytest.raises(UsageError, match="--pointer"):
        pointer_name("dev", channel)


@pytest.mark.parametrize("field", ["key", "content_digest"])
def test_a_reference_that_fits_nothing_is_named_with_where_it_came_from(
    store: FileStore, output: Output, field: str
) -> None:
    """A flipped bit in a pointer must not look like a damaged output only."""
    good = vars(output.reference)
    wrong = "0" if good[field][0] != "0" else "1"
    changed = {**good, field: wrong + good[field][1:]}
    changed["manifest_uri"] = f"cas/toy/{changed['key']}/MANIFEST.json"
    with pytest.raises(DataError, match=r"pointers/dev/toy\.json, which may be damaged itself"):
        open_named(store, Reference(**changed), pointer_name("dev", "toy"))
