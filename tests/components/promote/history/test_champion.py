"""The history of a channel's champions and the pointer that follows it, while others change both."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace

import pytest

from yanmo.promote.history.champion import ChampionChanged, Promotion, champion_of, make_champion
from yanmo.promote.history.rollback import plan_rollback, roll_back
from yanmo.store.champion_records import CHAMPION, all_records
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
    before, last = champion_of(stage.store, "dev")
    verdict = open_reference(stage.store, stage.pointer("promote"))
    return Promotion(
        model=model, evaluation=evaluation, verdict=verdict, previous=before, last=last, compared_with=None
    )


def promoted(store, decided):
    """Promote it over whoever is champion now."""
    before, last = champion_of(store, "dev")
    make_champion(store, "dev", replace(decided, previous=before, last=last))


def rolled_back(store):
    return roll_back(store, plan_rollback(store, "dev"), who="li", why="rude")


def check_that_the_pointer_follows_the_history(store):
    records = all_records(store, "dev")
    assert read_pointer(store, "dev", CHAMPION) == records[-1].model
    assert not records[-1].rollback_of(records[-1].model.content_digest)
    assert all(later.previous == one.model != later.model for one, later in itertools.pairwise(records))


@pytest.mark.parametrize("kind", ["read", "create", "replace"])
@pytest.mark.parametrize(
    ("mine", "theirs"), [("promote", "promote"), ("promote", "rollback"), ("rollback", "promote")]
)
def test_wherever_another_cuts_in_both_are_done_or_one_says_so(stage, tmp_path_factory, kind, mine, theirs):
    for seed in (1, 2):
        stage.evaluate(stage.model(seed), 9 - seed / 10)
        assert stage.promote() == 0
    plans = {name: promotion(stage, seed, 8.4) for name, seed in (("mine", 100), ("theirs", 200))}
    happened, followed = [], 0
    for number in range(1, 60):
        folder = shutil.copytree(stage.folder, tmp_path_factory.mktemp("store") / "copy")
        store = FileStore(folder)

        added = []

        def other(number=number, store=store, added=added):
            happened.append(number)
            already = len(all_records(store, "dev"))
            promoted(store, plans["theirs"]) if theirs == "promote" else rolled_back(store)
            added.append(len(all_records(store, "dev")) - already)

        cut = Interrupted(folder, kind, number, other)
        before = len(all_records(store, "dev"))
        try:
            make_champion(cut, "dev", plans["mine"]) if mine == "promote" else rolled_back(cut)
        except ChampionChanged:
            done = 0
        else:
            done = 1
        assert len(all_records(store, "dev")) == before + done + sum(added)
        check_that_the_pointer_follows_the_history(store)
        shutil.rmtree(folder)
        if happened[-1:] != [number]:  # no request of the kind was left to cut in before
            break
        followed += added == [0]
    assert happened and number < 59
    assert not followed or (mine, theirs) == ("promote", "rollback"), "it found my pointer behind my record"


def test_a_promotion_decided_before_its_model_was_taken_down_does_not_promote_it(stage):
    stage.evaluate(stage.model(1), 8.8)
    assert stage.promote() == 0
    mine = promotion(stage, 2, 8.6)
    make_champion(stage.store, "dev", mine)
    rolled_back(stage.store)
    assert read_pointer(stage.store, "dev", CHAMPION) == mine.previous, "it names what it named before"
    with pytest.raises(ChampionChanged, match="got another champion meanwhile"):
        make_champion(stage.store, "dev", mine)
    with pytest.raises(ChampionChanged, match=r"taken down .* by li: rude"):
        promoted(stage.store, mine)
    check_that_the_pointer_follows_the_history(stage.store)


def test_a_pointer_that_was_moved_by_hand_is_set_back_and_it_is_said(stage, caplog):
    stage.evaluate(stage.model(1), 8.8)
    assert stage.promote() == 0
    path = stage.folder / "pointers/dev/champion.json"
    path.write_text(stage.model(9).reference.to_json())
    assert stage.promote() == 0
    assert "it names the last of the history again" in caplog.text
    check_that_the_pointer_follows_the_history(stage.store)


def test_a_copied_champion_without_a_history_is_compared_with(stage, caplog):
    """As `yanmo store cp` makes a channel that is served; the first promotion begins its history."""
    copied = stage.model(1)
    evaluation = stage.evaluate(copied, 8.0)
    stage.store.create("pointers/dev/champion.json", copied.reference.to_json().encode())
    better = stage.model(2)
    stage.evaluate(better, 7.8)
    assert stage.promote() == 65, "nobody has measured it"
    assert stage.promote("--champion", f"evaluate/{evaluation.reference.key}") == 0
    (record,) = all_records(stage.store, "dev")
    assert record.previous == copied.reference and stage.pointer("champion") == better.reference
    best = stage.model(3)
    stage.evaluate(best, 7.6)
    assert stage.promote("--champion", f"evaluate/{evaluation.reference.key}") == 0, "a former champion's"
    assert stage.pointer("champion") == best.reference
    assert caplog.text.count("measures a former champion; compared with") == 1
    stage.evaluate(stage.model(4), 7.4)
    assert stage.promote() == 0
    assert caplog.text.count("measures a former champion") == 1
