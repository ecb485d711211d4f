"""Kill -9: journeys through the whole pipeline in which every writer is killed before one of its commits.

A journey runs the six stages one after another in one store. Each stage is killed once for each of its
writers, then run again until it is done, so that what one kill left is what the next run meets. Afterwards
the store must hold the outputs of the undisturbed run and nothing besides.

Moments come from a seed. For every second kill the moment is drawn from the second before the writer's
commit, for the others from all the time since the commit before. A moment is told to the run as "so long
after this event", because the machine is never as fast as it was when the profile was taken; where the commit
comes sooner than that, the kill comes with it.
"""

from __future__ import annotations

import random
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torture import tools
from torture.events import Listener
from torture.place import Place, Survey, leftovers, lost, survey
from torture.profile import FLOATING, Moment, Profile, roots
from torture.stages import Run, start_stage

_LATE_SECONDS = 0.005
"""An audit event comes before its deed: a kill within this time of the commit's event is still before it,
or in it."""


@dataclass
class Kill:
    """One kill, and what it did."""

    stage: str
    writer: str
    aimed: bool
    main_only: bool
    """The stage's own process alone, or all of its processes."""
    before: float
    """Seconds before the commit in the undisturbed run."""
    event: str
    """What the process was about to do, or had just done."""
    late: bool = False
    """The commit had been made when the kill came."""


@dataclass
class Journey:
    """One store's way through all stages."""

    number: int
    kills: list[Kill] = field(default_factory=list)
    missed: int = 0
    """Moments that did not come: the stage was done before."""
    damaged: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    wrong_digests: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Runs after a kill that did not end well."""
    leftovers: int = 0
    """Objects that nothing named, before `gc`."""
    leftovers_after_gc: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[str]:
        """Everything that must not be."""
        wrong = [*self.damaged, *self.lost, *self.orphans, *self.wrong_digests]
        return [*wrong, *self.failed, *self.leftovers_after_gc]

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Journey:
        """Read what `to_json` gave."""
        return cls(**{**value, "kills": [Kill(**kill) for kill in value["kills"]]})


class _Traveller:
    """Carries one journey out."""

    def __init__(self, profile: Profile, place: Place, folder: Path, number: int, seed: int) -> None:
        self.profile, self.place, self.folder = profile, place, folder
        self.draw = random.Random(f"{seed}/{number}")
        self.journey = Journey(number)
        self.drawn = number
        self.known = Survey({}, {}, set(), set(), [])

    def travel(self) -> Journey:
        home = {writer: self.draw.choice(self._homes(writer)) for writer in FLOATING if self._homes(writer)}
        for stage in self.profile.events:
            for moment in self._moments(stage, home):
                if not self._kill(moment):
                    break
            self._finish(stage)
        self._compare()
        return self.journey

    def _homes(self, writer: str) -> list[str]:
        events = self.profile.events
        return [s for s in events if any(events[s][n].writer == writer for n in self.profile.commits(s))]

    def _moments(self, stage: str, home: dict[str, str]) -> list[Moment]:
        """The stage's kills, in the order in which their commits come."""
        events, chosen = self.profile.events[stage], []
        wanted = [*self.profile.writers(stage), *(w for w in FLOATING if home.get(w) == stage)]
        for writer in wanted:
            commits = [n for n in self.profile.commits(stage) if events[n].writer == writer]
            chosen.append(self.draw.choice(commits))
        moments = []
        for commit in sorted(chosen):
            self.drawn += 1  # journeys begin with either half in turn
            moments.append(self.profile.moment(stage, commit, self.drawn % 2 == 0, self.draw))
        return moments

    def _kill(self, moment: Moment) -> bool:
        """Run a stage and kill it; False when it was done before the moment came."""
        main_only = self.draw.random() < 0.5
        with Listener(self.folder / f"witness-{self.journey.number}", roots(self.place)) as listener:
            due, commit = threading.Event(), threading.Event()
            listener.on(moment.kind, moment.name, moment.occurrence, due.set)
            listener.on(*moment.commit, lambda: (commit.set(), due.set()))
            variables = {"YANMO_WITNESS": str(listener.path)}
            run = start_stage(moment.stage, self.place, self.folder, environment=variables)
            while not due.wait(0.02) and run.process.poll() is None:
                pass
            if due.is_set():
                commit.wait(moment.delay)  # on a fast day the commit itself may come first: then now
            killed = run.process.poll() is None
            seen = len(listener.events)
            run.kill_main() if main_only else run.kill_all()
            code = run.wait()
        if killed:
            before = listener.events[:seen]
            late = sum((e.kind, e.name) == moment.commit[:2] for e in before) > moment.commit[2] and (
                before[-1].seconds - self._commit_seconds(before, moment) > _LATE_SECONDS
            )
            last = f"{before[-1].kind} {before[-1].name[-80:]}" if before else "start"
            kill = Kill(moment.stage, moment.writer, moment.aimed, main_only, moment.before, last, late)
            self.journey.kills.append(kill)
        else:
            self.journey.missed += 1
            self._expect_done(moment.stage, run, code)
        self.journey.orphans += run.orphans
        self._look(f"after the kill of {moment.stage} before {moment.writer}")
        return killed

    @staticmethod
    def _commit_seconds(events: list[Any], moment: Moment) -> float:
        return float([e.seconds for e in events if (e.kind, e.name) == moment.commit[:2]][moment.commit[2]])

    def _finish(self, stage: str) -> None:
        run = start_stage(stage, self.place, self.folder)
        self._expect_done(stage, run, run.wait())
        self._look(f"after {stage}")

    def _expect_done(self, stage: str, run: Run, code: int) -> None:
        if code != 0:
            self.journey.failed.append(f"{stage} ended with {code} after a kill: {run.text[-1500:]}")

    def _look(self, when: str) -> None:
        now = survey(self.place)
        self.journey.damaged += [f"{when}: {fault}" for fault in now.faults]
        self.journey.lost += [f"{when}: {name}" for name in lost(self.known, now)]
        self.known = now

    def _compare(self) -> None:
        expected, found = self.profile.survey.digests, self.known.digests
        for name in sorted({*expected, *found}):
            if expected.get(name) != found.get(name):
                self.journey.wrong_digests.append(
                    f"{name}: {found.get(name)}, undisturbed {expected.get(name)}"
                )
        self.journey.leftovers = len(leftovers(self.known))
        code, text = tools.collect(self.place, self.folder)
        if code:
            self.journey.failed.append(f"gc ended with {code}: {text[-1500:]}")
        before, self.known = self.known, survey(self.place)
        self.journey.damaged += [f"gc: {harm}" for harm in tools.harm(before, self.known)]
        self.journey.leftovers_after_gc = [f"after gc: {n}" for n in leftovers(self.known)]


def travel(profile: Profile, place: Place, folder: Path, number: int, seed: int) -> Journey:
    """Make journey `number` of the seed in the empty store `place`."""
    return _Traveller(profile, place, folder, number, seed).travel()


def table(journeys: list[Journey]) -> list[list[str]]:
    """Rows of writer, kills, within a second before the commit, anywhere, as it was committed."""
    rows = []
    kills = [kill for journey in journeys for kill in journey.kills]
    for writer in dict.fromkeys(kill.writer for kill in kills):
        mine = [kill for kill in kills if kill.writer == writer]
        aimed = sum(kill.aimed and not kill.late for kill in mine)
        late = sum(kill.late for kill in mine)
        rows.append([writer, str(len(mine)), str(aimed), str(len(mine) - aimed - late), str(late)])
    return rows
