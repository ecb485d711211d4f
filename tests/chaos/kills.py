"""Kill -9: journeys through the whole pipeline in which every writer is killed before one of its commits.

A journey runs the stages one after another in one store. Each stage is killed once for each of its writers,
then run again until it is done, so that what one kill left is what the next run meets. Afterwards the store
must hold the outputs of the undisturbed run, and after gc nothing besides.

Moments come from a seed. For every second kill the moment is drawn from the second before the writer's
commit, for the others from all the time since the commit before. A moment is told to the run as "so long
after this event", because the machine is never as fast as it was when the profile was taken; where the commit
comes sooner than that, the kill comes with it.
"""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Iterator

from chaos import collect
from chaos.events import Event, Listener
from chaos.ground import Ground
from chaos.place import Place, Survey, leftovers, lost, survey
from chaos.plan import Case
from chaos.profile import FLOATING, Moment, roots
from chaos.start import Run, start_stage

_LATE_SECONDS = 0.005
"""An audit event comes before its deed: a kill within this time of the commit's event is still before it,
or in it."""


def cases(ground: Ground) -> Iterator[Case]:
    """Journeys until there are 200 kills, in a brief run 12."""
    of_one = len(FLOATING) + sum(len(ground.profile.writers(stage)) for stage in ground.profile.events)
    for number in range(math.ceil(ground.times(200, 12) / of_one)):
        yield Case("kills", f"journey {number}", Journey(ground, number).travel)


class Journey:
    """One store's way through all stages."""

    def __init__(self, ground: Ground, number: int) -> None:
        self.ground, self.profile, self.number = ground, ground.profile, number
        self.draw = random.Random(f"{ground.seed}/{number}")
        self.drawn = number
        self.known = Survey({}, {}, set(), set(), [])
        self.killed: Counter[str] = Counter()
        """Writer -> kills before its commit."""
        self.missed = self.late = self.aimed = 0
        """Moments that did not come, as the stage was done before; kills when the commit was made, or within
        the second before it."""
        self.findings: list[str] = []

    def travel(self) -> tuple[str, list[str]]:
        """Go; what was killed, and what is wrong."""
        home = {writer: self.draw.choice(self._homes(writer)) for writer in FLOATING if self._homes(writer)}
        with self.ground.place() as place:
            for stage in self.profile.events:
                for moment in self._moments(stage, home):
                    if not self._kill(place, moment):
                        break
                run = start_stage(stage, place, self.ground.folder)
                self._is_done(stage, run, run.wait())
                self._look(place, f"after {stage}")
            self.findings += self.ground.differences(place, may_leave=True)
            left = len(leftovers(self.known))
            self.findings += collect.and_nothing_is_left(place, self.ground.folder)
        kills = (
            f"{self.killed.total()} kills before {len(self.killed)} writers, {self.aimed} in the last second"
        )
        return (
            f"{kills}, {self.late} late, {self.missed} missed; {left} leftovers, gone after gc",
            self.findings,
        )

    def _homes(self, writer: str) -> list[str]:
        events = self.profile.events
        return [s for s in events if any(events[s][n].writer == writer for n in self.profile.commits(s))]

    def _moments(self, stage: str, home: dict[str, str]) -> list[Moment]:
        """The stage's kills, in the order in which their commits come."""
        events, chosen = self.profile.events[stage], []
        for writer in (*self.profile.writers(stage), *(w for w in FLOATING if home.get(w) == stage)):
            commits = [n for n in self.profile.commits(stage) if events[n].writer == writer]
            chosen.append(self.draw.choice(commits))
        moments = []
        for commit in sorted(chosen):
            self.drawn += 1  # journeys begin with either half in turn
            moments.append(self.profile.moment(stage, commit, self.drawn % 2 == 0, self.draw))
        return moments

    def _kill(self, place: Place, moment: Moment) -> bool:
        """Run a stage and kill it; False when it was done before the moment came."""
        main_only = self.draw.random() < 0.5
        with Listener(self.ground.folder / f"witness-{self.number}", roots(place)) as listener:
            due, commit = threading.Event(), threading.Event()
            listener.on(moment.kind, moment.name, moment.occurrence, due.set)
            listener.on(*moment.commit, lambda: (commit.set(), due.set()))
            run = start_stage(moment.stage, place, self.ground.folder, environment=listener.variables)
            while not due.wait(0.02) and run.process.poll() is None:
                pass
            if due.is_set():
                commit.wait(moment.delay)  # on a fast day the commit itself may come first: then now
            killed = run.process.poll() is None
            before = list(listener.events)
            run.kill_main() if main_only else run.kill_all()
            code = run.wait()
        if killed:
            is_late = _is_late(before, moment)
            self.killed[moment.writer] += 1
            self.late, self.aimed = self.late + is_late, self.aimed + (moment.aimed and not is_late)
        else:
            self.missed += 1
            self._is_done(moment.stage, run, code)
        self.findings += [f"outlived a kill: {line}" for line in run.orphans]
        self._look(place, f"after the kill of {moment.stage} before {moment.writer}")
        return killed

    def _is_done(self, stage: str, run: Run, code: int) -> None:
        if code != 0:
            self.findings.append(f"{stage} ended with {code} after a kill: {run.text[-1500:]}")

    def _look(self, place: Place, when: str) -> None:
        now = survey(place)
        self.findings += [f"{when}: {fault}" for fault in (*now.faults, *lost(self.known, now))]
        self.known = now


def _is_late(events: list[Event], moment: Moment) -> bool:
    """Whether the commit had been made when the last of these events came."""
    commits = [event.seconds for event in events if (event.kind, event.name) == moment.commit[:2]]
    made = commits[moment.commit[2] :]
    return bool(made) and events[-1].seconds - made[0] > _LATE_SECONDS
