"""The undisturbed run: what every stage writes, when, and what comes out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from chaos.events import Event, Listener
from chaos.place import Place, Survey, survey
from chaos.start import start_stage

_SECOND = 1.0
FLOATING = ("lease", "pointers", "scratch")
"""Writers of every stage: each journey draws the stage in which they are killed."""


@dataclass(frozen=True)
class Moment:
    """When to kill a stage: some seconds after a certain event."""

    stage: str
    writer: str
    """Whose next commit it is aimed at."""
    aimed: bool
    """Within the second before that commit; else anywhere since the commit before."""
    kind: str
    name: str
    occurrence: int
    """The event: its kind and name, and how many like it came before."""
    delay: float
    """Seconds from the event to the kill."""
    commit: tuple[str, str, int]
    """Kind, name and occurrence of the commit."""


@dataclass
class Profile:
    """What the undisturbed run showed."""

    events: dict[str, list[Event]]
    """Stage -> its events, in order."""
    survey: Survey

    def commits(self, stage: str) -> list[int]:
        """Indices of the stage's commits, in order."""
        return [n for n, event in enumerate(self.events[stage]) if event.writer]

    def writers(self, stage: str) -> list[str]:
        """Writers that commit in a stage and in no other, in order of their first commit."""
        found = (self.events[stage][n].writer for n in self.commits(stage))
        return [writer for writer in dict.fromkeys(found) if writer not in FLOATING]

    def moment(self, stage: str, commit: int, aimed: bool, draw: random.Random) -> Moment:
        """A moment before the event number `commit`, and after the commit before it."""
        events = self.events[stage]
        at = events[commit].seconds
        earlier = [events[n].seconds for n in self.commits(stage) if n < commit]
        low = earlier[-1] if earlier else events[0].seconds
        if aimed:
            low = max(low, at - _SECOND)
        when = draw.uniform(low, at)
        index = max((n for n in range(commit) if events[n].seconds <= when), default=0)
        trigger = events[index]
        return Moment(
            stage, events[commit].writer, aimed, trigger.kind, trigger.name,
            _occurrence(events, index), when - trigger.seconds,
            (events[commit].kind, events[commit].name, _occurrence(events, commit)),
        )  # fmt: skip


def _occurrence(events: list[Event], index: int) -> int:
    place = (events[index].kind, events[index].name)
    return sum((e.kind, e.name) == place for e in events[:index])


def take_profile(place: Place, folder: Path, stages: tuple[str, ...]) -> Profile:
    """Run the stages undisturbed, and listen.

    Raises:
        AssertionError: a stage failed, or the store it left is not sound.
    """
    events = {}
    for stage in stages:
        with Listener(folder / "witness", roots(place)) as listener:
            run = start_stage(stage, place, folder, environment=listener.variables)
            code = run.wait()
        assert code == 0, f"{stage} ended with {code}:\n{run.text}"
        events[stage] = listener.events
    found = survey(place)
    assert not found.faults, found.faults
    return Profile(events, found)


def roots(place: Place) -> tuple[str, ...]:
    """What events' names begin with in this place."""
    path = place.uri.partition("://")[2]
    return (path, str(place.scratch), str(Path.home()))
