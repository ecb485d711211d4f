"""Random histories of a channel, days, kills and gc: what is needed stays readable, and the rest of former
champions goes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from champions import WITH_DATA, Channel, Night
from ground import TEXTS, Ground, ids
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_former import MORE, has_all_data, has_no_data, killed_gc, learned_by, names, reopened

from yanmo.promote.history.rollback import plan_rollback, roll_back
from yanmo.store.output import Output
from yanmo.tools.store.inventory import KeyName

ALL = (*TEXTS, *MORE)
NIGHT = st.tuples(
    st.just("night"), st.integers(0, 4), st.booleans(), st.sampled_from(("no", "champion", "oldest"))
)
"""Which texts, whether its model is promoted, and which model it begins from."""
ACTION = st.one_of(
    NIGHT,
    NIGHT,
    st.tuples(st.just("days"), st.integers(1, 20)),
    st.tuples(st.just("rollback"), st.integers(0, 9)),
    st.tuples(st.just("gc"), st.sampled_from((1, 8, 15))),
    st.tuples(st.just("killed gc"), st.integers(0, 30)),
)


@dataclass
class Watched:
    """A channel, and since when each of its champions was one, in days from the first."""

    channel: Channel
    keep: int
    """`--keep-runs`."""
    today: float = 0.0
    since: list[float] = field(default_factory=list)
    made: dict[int, float] = field(default_factory=dict)
    """Number of a night, from 0 -> its day."""

    @property
    def ground(self) -> Ground:
        return self.channel.ground

    def do(self, action: tuple[object, ...]) -> None:
        name, *given = action
        if name == "night":
            self.night(*given)  # type: ignore[arg-type]
        elif name == "days":
            self.channel.days_pass(int(str(given[0])))
            self.today += int(str(given[0]))
        elif name == "rollback":
            self.roll_back(int(str(given[0])))
        elif name == "gc":
            self.gc(int(str(given[0])))
        else:
            killed_gc(self.ground, int(str(given[0])), self.words(8))

    def words(self, age: int) -> tuple[str, ...]:
        """Of a gc."""
        return ("--older-than", "1d", "--keep-runs", str(self.keep), "--former-data", f"{age}d", "--delete")

    def night(self, first: int, promoted: bool, start: str) -> None:
        champions = self.channel.champions
        before = {"no": None, "champion": champions[-1:], "oldest": champions[:1]}[start]
        texts = ALL[first : first + 4]
        self.channel.night(texts, promoted=promoted or not champions, start=before[0] if before else None)
        self.made[len(self.channel.nights) - 1] = self.today
        self.since += [self.today] * (len(self.channel.champions) - len(self.since))

    def roll_back(self, choice: int) -> None:
        champions = self.channel.champions
        others = [n for n, one in enumerate(champions, 1) if one.model is not champions[-1].model]
        if others:
            number = others[choice % len(others)]
            roll_back(self.ground.store, plan_rollback(self.ground.store, "main", number), who="li", why="so")
            champions.append(champions[number - 1])
            self.since.append(self.today)

    def gc(self, age: int) -> None:
        """Run it, and hold what it left against what this test knows by itself."""
        before = {one: learned_by(self.ground, self.models, one) for one in (ids(ALL)[0], ids(ALL)[5])}
        gone = {name for name, output in self.outputs.items() if output.is_let_go()}
        result = self.ground.tool("gc", *self.words(age))
        assert result.code == 0, result.out
        verified = self.ground.tool("verify")
        assert verified.code == 0, verified.out
        assert {one: learned_by(self.ground, self.models, one) for one in before} == before
        for one in self.channel.champions:
            for stage in ("train", "evaluate", "promote"):
                assert reopened(self.ground.store, one.outputs[stage]).paths("*")
        outputs = self.outputs
        needed = self.needed(age) & outputs.keys()
        for name in needed - gone:
            assert has_all_data(outputs[name]), f"{name} is needed"
        former = {_name(one.outputs[stage]) for one in self.channel.champions for stage in WITH_DATA}
        for name in former - needed - self.young(outputs):
            assert has_no_data(outputs[name]), f"{name} is of former champions alone"
        assert "nothing to remove" in self.ground.tool("gc", *self.words(age)).out

    @property
    def models(self) -> dict[str, Night]:
        return names(self.channel.champions)

    @property
    def outputs(self) -> dict[KeyName, Output]:
        """What has data, of champions, as it is in the store now."""
        store = self.ground.store
        found = {
            _name(one.outputs[stage]): one.outputs[stage]
            for one in self.channel.champions
            for stage in WITH_DATA
        }
        return {name: reopened(store, output) for name, output in found.items()}

    def needed(self, age: int) -> set[KeyName]:
        """What has to have its data, of what champions rest on."""
        nights, champions = self.channel.nights, self.channel.champions
        live = [nights[-1], *(night for night in nights[-self.keep :] if self.keep)]
        live += [night for n, night in enumerate(nights) if self.today - self.made[n] < 1]
        ends = [*self.since[1:], float("inf")]
        live += [one for one, end in zip(champions, ends, strict=True) if self.today - end < age]
        found = {_name(night.outputs[stage]) for night in live for stage in WITH_DATA}
        for night in live:
            while (start := self.began_from(night)) is not None:
                found.add(_name(start.outputs["curate"]))
                night = start
        return found

    def began_from(self, night: Night) -> Night | None:
        value = night.model.manifest.inputs.get("model")
        return next((n for n in self.channel.nights if value and n.model.manifest.key == value["key"]), None)

    def young(self, outputs: dict[KeyName, Output]) -> set[KeyName]:
        """What was made again within a day."""
        store = self.ground.store
        found = set()
        for name, output in outputs.items():
            info = store.stat(output.reference.manifest_uri)
            if info and store.clock() - info.modified < 86400:
                found.add(name)
        return found


def _name(output: Output) -> KeyName:
    return output.manifest.stage, output.manifest.key


@pytest.mark.long
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.integers(0, 2), st.lists(ACTION, min_size=4, max_size=12))
def test_whatever_came_before_what_is_needed_stays_and_the_data_of_former_champions_goes(
    keep: int, actions: list[tuple[object, ...]]
) -> None:
    with tempfile.TemporaryDirectory(prefix="former-") as folder:
        watched = Watched(Channel(Ground(str(Path(folder) / "store"))), keep)
        watched.night(0, True, "no")
        for action in actions:
            watched.do(action)
        watched.channel.days_pass(16)
        watched.today += 16
        watched.gc(15)
