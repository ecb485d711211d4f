"""`yanmo store gc`: killed while it removes, and beside the stages."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

from chaos.events import Listener
from chaos.ground import Ground
from chaos.place import Place, Survey, leftovers, survey
from chaos.plan import Case
from chaos.profile import roots
from chaos.start import Run, run_stage, run_stages, start, start_stage

_SETTLED_SECONDS = 3.0
"""gc spares what is younger than 2 s and not guarded by a lease."""
_GARBAGE = (
    ("curate", "--min-han-characters", "11", "--pointer", "none"),
    ("balance", "--seed", "7", "--pointer", "none"),
    ("balance", "--seed", "8", "--pointer", "none"),
)
_REMOVALS = ("os.remove", "os.rmdir", "shutil.rmtree", "DELETE")


def start_gc(place: Place, folder: Path, **variables: str) -> Run:
    """Start gc for everything that nothing refers to, whatever its age."""
    ages = ("--older-than", "0s", "--abandoned", "0s")
    return start(
        "yanmo.tools.store", ("gc", "--store", place.uri, *ages, "--delete"), place, folder, variables
    )


def let_settle(place: Place) -> None:
    """Make everything old enough for gc: in a folder by its times, on a server by waiting."""
    if not place.backdate(2 * 3600):
        time.sleep(_SETTLED_SECONDS)


def and_nothing_is_left(place: Place, folder: Path) -> list[str]:
    """Run gc on a settled store: what it broke or left behind."""
    before = survey(place)
    let_settle(place)
    run = start_gc(place, folder)
    failed = [f"gc ended with {code}: {run.text[-900:]}"] if (code := run.wait()) else []
    after = survey(place)
    return [*failed, *harm(before, after), *(f"after gc: {name}" for name in leftovers(after))]


def harm(before: Survey, after: Survey) -> list[str]:
    """What gc broke: outputs that are not whole, pointers that name another content or nothing.

    Outputs that nothing names may go: that is what gc is for.
    """
    changed = [n for n, digest in before.digests.items() if after.digests.get(n) != digest]
    return [*after.faults, *(f"pointer {name} changed" for name in changed)]


def cases(ground: Ground) -> Iterator[Case]:
    """Kill gc while it removes, then let it end; and run it beside the stages."""
    yield Case("gc", "killed while it removes", lambda: _killed(ground, ground.times(12, 3)))
    yield Case("gc", "beside the stages", lambda: _beside(ground))


def _killed(ground: Ground, times: int) -> tuple[str, list[str]]:
    draw = random.Random(f"{ground.seed}/gc")
    findings: list[str] = []
    kills = 0
    with ground.place() as place:
        run_stages(ground.stages, place, ground.folder)
        for _ in range(times):
            _litter(ground, place, draw)
            before = survey(place)
            let_settle(place)
            kills += _kill_gc(place, ground.folder, draw)
            findings += harm(before, survey(place))
        findings += and_nothing_is_left(place, ground.folder)
    return f"{kills} kills of {times} tries, then nothing is left", findings


def _litter(ground: Ground, place: Place, draw: random.Random) -> None:
    """An output that nothing refers to, and the half of another."""
    stage, *flags = draw.choice(_GARBAGE)
    run_stage(stage, place, ground.folder, *flags)
    stage, *flags = draw.choice(_GARBAGE)
    with Listener(ground.folder / "witness-litter", roots(place)) as listener:
        run = start_stage(stage, place, ground.folder, *flags, "--force", environment=listener.variables)
        listener.on("open", f"/cas/{stage}/*/*/metrics.prom", 0, run.kill_all)
        run.wait()


def _kill_gc(place: Place, folder: Path, draw: random.Random) -> bool:
    """Kill gc at one of its removals; False when it was done before."""
    with Listener(folder / "witness-gc", roots(place)) as listener:
        run = start_gc(place, folder, **listener.variables)
        left = draw.randrange(1, 12)
        while run.process.poll() is None:
            if sum(event.kind in _REMOVALS for event in listener.events) >= left:
                run.kill_all()
                break
            time.sleep(0.0005)
        return run.wait() == -9


def _beside(ground: Ground) -> tuple[str, list[str]]:
    """gc again and again while the stages run; what was there when a stage began is two hours old."""
    findings: list[str] = []
    rounds = 0
    with ground.place() as place:
        for stage in ground.stages:
            place.backdate(2 * 3600)
            run = start_stage(stage, place, ground.folder)
            while run.process.poll() is None:
                gc = start_gc(place, ground.folder)  # no age: a live run names what it makes
                if code := gc.wait():
                    findings.append(f"gc beside {stage} ended with {code}: {gc.text[-900:]}")
                rounds += 1
            if code := run.wait():
                findings.append(f"{stage} beside gc ended with {code}: {run.text[-1200:]}")
        findings += ground.differences(place, may_leave=True)
    return f"{rounds} rounds of gc beside {len(ground.stages)} stages", findings
