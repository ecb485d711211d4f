"""The champion's pointers while two promotions of a channel run at the same moment."""

from __future__ import annotations

import pytest

from yanmo.promote.history.champion import CHAMPION, CHAMPION_EVALUATION, Promotion, make_champion, settle
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


def test_a_promotion_that_was_overtaken_leaves_the_others_evaluation(stage):
    stage.evaluate(stage.model(1), 8.8)
    assert stage.promote() == 0
    mine, theirs = promotion(stage, 2, 8.6), promotion(stage, 3, 8.4)
    make_champion(stage.store, "dev", mine)
    overtaking = Promotion(**{**vars(theirs), "previous": mine.model.reference})
    make_champion(stage.store, "dev", overtaking)
    settle(stage.store, "dev", mine)
    assert read_pointer(stage.store, "dev", CHAMPION_EVALUATION) == theirs.evaluation.reference
