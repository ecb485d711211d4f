"""The champion's pointers while two promotions of a channel run at the same moment."""

from __future__ import annotations

import itertools
import shutil

import pytest

from yanmo.promote.history.champion import (
    CHAMPION,
    CHAMPION_EVALUATION,
    ChampionChanged,
    Promotion,
    make_champion,
    settle,
)
from yanmo.promote.history.champion_records import all_records
from yanmo.promote.history.rollback import plan_rollback, roll_back
from yanmo.store.file_store import FileStore
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer


class Interrupted(FileStore):
    """A store of files in which something else happens just before the n-th request of one kind."""

    def __init__(self, root, kind, number, other):
        super().__init__(root)
        self._kind, self._left, self._other = kind, number, other

    def _meanwhile(self, kind):
        if kind == self._kind:
            self._left -= 1
            if self._left == 0:
                self._other()

    def read(self, name):
        self._meanwhile("read")
        return super().read(name)

    def create(self, name, data):
        self._meanwhile("create")
        return super().create(name, data)

    def replace(self, name, data, version):
        self._meanwhile("replace")
        return FileStore(self.root).replace(name, data, version)  # it reads under a lock of its own


def promotion(stage, seed, bits):
    """What a promote of one more model, which won, would do."""
    model = stage.model(seed)
    evaluation = stage.evaluate(model, bits)
    first = read_pointer(stage.store, "dev", CHAMPION)
    verdict = open_reference(stage.store, stage.pointer("promote"))
    return Promotion(model=model, evaluation=evaluation, verdict=verdict, previous=first, compared_with=None)


@pytest.mark.parametrize("kind", ["read", "create", "replace"])
def test_the_evaluation_stays_that_of_the_champion_wherever_another_promotion_cuts_in(stage, kind):
    stage.evaluate(stage.model(1), 8.8)
    assert stage.promote() == 0
    happened = []
    for number in range(1, 40):
        theirs = promotion(stage, 100 + number, 8.4)

        def other(number=number, theirs=theirs):
            before = read_pointer(stage.store, "dev", CHAMPION)
            happened.append(number)
            make_champion(stage.store, "dev", Promotion(**{**vars(theirs), "previous": before}))

        before = read_pointer(stage.store, "dev", CHAMPION)
        store = Interrupted(stage.folder, kind, number, other)
        mine = Promotion(**{**vars(promotion(stage, 200 + number, 8.5)), "previous": before})
        try:
            make_champion(store, "dev", mine)
        except Exception as error:  # cut in before the swap: nothing of mine was moved
            assert "another champion meanwhile" in str(error)
        champion = read_pointer(stage.store, "dev", CHAMPION)
        measured = open_reference(stage.store, read_pointer(stage.store, "dev", CHAMPION_EVALUATION))
        assert measured.input("model").content_digest == champion.content_digest, (kind, number)
        if happened[-1:] != [number]:  # no request of the kind was left to cut in before
            break
    assert happened and number < 39


def check_that_the_history_follows_the_pointer(store):
    """Pointer, last record and evaluation are of one model; each promotion names another one than before."""
    champion = read_pointer(store, "dev", CHAMPION)
    records = all_records(store, "dev")
    assert records[-1].model == champion
    measured = open_reference(store, read_pointer(store, "dev", CHAMPION_EVALUATION))
    assert measured.input("model").content_digest == champion.content_digest
    assert not records[-1].rollback_of(champion.content_digest)
    assert all(a.model != b.model for a, b in itertools.pairwise(records) if b.kind == "promotion")


def rolled_back(store):
    return roll_back(store, plan_rollback(store, "dev"), who="li", why="rude")


@pytest.mark.parametrize("kind", ["read", "create", "replace"])
def test_a_rollback_that_cuts_into_a_promotion_stands(stage, kind):
    for seed in (1, 2):
        stage.evaluate(stage.model(seed), 9 - seed / 10)
        assert stage.promote() == 0
    happened = []
    for number in range(1, 40):
        mine, first = promotion(stage, 200 + number, 8.5), len(all_records(stage.store, "dev"))

        def other(number=number):
            happened.append(number)
            rolled_back(stage.store)

        own = mine.model.content_digest
        try:
            record = make_champion(Interrupted(stage.folder, kind, number, other), "dev", mine)
        except ChampionChanged:
            assert read_pointer(stage.store, "dev", CHAMPION).content_digest != own
        else:
            assert record.model.content_digest == own
            names = [r.model.content_digest for r in all_records(stage.store, "dev")[first:]]
            assert own in names, "it was champion, for a while at least, and the history says so"
        check_that_the_history_follows_the_pointer(stage.store)
        if happened[-1:] != [number]:
            break
        before = read_pointer(stage.store, "dev", CHAMPION)  # a fresh champion to go back from
        fresh = promotion(stage, 300 + number, 8.4)
        make_champion(stage.store, "dev", Promotion(**{**vars(fresh), "previous": before}))
    assert happened and number < 39


@pytest.mark.parametrize("kind", ["read", "create", "replace"])
def test_a_promotion_that_cuts_into_a_rollback_stands(stage, tmp_path_factory, kind):
    for seed in (1, 2):
        stage.evaluate(stage.model(seed), 9 - seed / 10)
        assert stage.promote() == 0
    theirs, happened = promotion(stage, 100, 8.4), []
    for number in range(1, 60):  # each in a copy, as a rollback reads the whole history
        folder = shutil.copytree(stage.folder, tmp_path_factory.mktemp("store") / "copy")
        store = FileStore(folder)

        def other(number=number, store=store):
            happened.append(number)
            before = read_pointer(store, "dev", CHAMPION)
            make_champion(store, "dev", Promotion(**{**vars(theirs), "previous": before}))

        try:
            rolled_back(Interrupted(folder, kind, number, other))
        except ChampionChanged:
            assert happened[-1] == number
        check_that_the_history_follows_the_pointer(store)
        if happened[-1:] != [number]:
            break
        shutil.rmtree(folder)
    assert happened and number < 59


def test_a_promotion_decided_before_its_model_was_taken_down_does_not_promote_it(stage):
    stage.evaluate(stage.model(1), 8.8)
    assert stage.promote() == 0
    mine = promotion(stage, 2, 8.6)
    make_champion(stage.store, "dev", mine)
    rolled_back(stage.store)
    with pytest.raises(ChampionChanged, match=r"taken down .* by li: rude"):
        make_champion(stage.store, "dev", mine)  # the pointer names what it named before
    check_that_the_history_follows_the_pointer(stage.store)


def test_a_promotion_that_was_overtaken_leaves_the_others_evaluation(stage):
    stage.evaluate(stage.model(1), 8.8)
    assert stage.promote() == 0
    mine, theirs = promotion(stage, 2, 8.6), promotion(stage, 3, 8.4)
    make_champion(stage.store, "dev", mine)
    overtaking = Promotion(**{**vars(theirs), "previous": mine.model.reference})
    make_champion(stage.store, "dev", overtaking)
    with pytest.raises(ChampionChanged, match="not entered into the history"):
        settle(stage.store, "dev", mine)
    assert [one.model for one in all_records(stage.store, "dev")][-1] == theirs.model.reference
    assert read_pointer(stage.store, "dev", CHAMPION_EVALUATION) == theirs.evaluation.reference
