"""`yanmo store` under torture: gc after kills, and gc killed itself."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

from torture.events import Listener
from torture.ground import Ground, Record
from torture.place import Place, Survey, leftovers, survey
from torture.profile import roots
from torture.stages import CHANNEL, Run, run_stage, start, start_stage

MODULE = "yanmo.tools.store"
_SETTLED_SECONDS = 3.0
"""gc spares what is younger than 2 s and not guarded by a lease."""
_GARBAGE = (
    ("curate", "--min-han-characters", "11", "--pointer", "none"),
    ("balance", "--seed", "7", "--pointer", "none"),
    ("balance", "--seed", "8", "--pointer", "none"),
    ("promote", "--seed", "7", "--pointer", "none", "--dry-run"),
)
_REMOVALS = ("os.remove", "os.rmdir", "shutil.rmtree", "DELETE")


def start_gc(place: Place, folder: Path, age: str = "0s", **variables: str) -> Run:
    """Start gc for everything that nothing refers to and that is older than `age`."""
    ages = ("--older-than", age, "--abandoned", age)
    return start(MODULE, ("gc", "--store", place.uri, *ages, "--delete"), place, folder, variables)


def let_settle(place: Place) -> None:
    """Make everything old enough for gc: in a folder by its times, on a server by waiting."""
    if not place.backdate(2 * 3600):
        time.sleep(_SETTLED_SECONDS)


def collect(place: Place, folder: Path) -> tuple[int, str]:
    """Run gc on a settled store; its exit code and log."""
    let_settle(place)
    run = start_gc(place, folder)
    return run.wait(), run.text


def run_gc(ground: Ground, record: Record, times: int = 12, tries: int = 20) -> None:
    """Kill gc while it removes, `times` times, then let it end; and run it beside the stages."""
    record.case("gc", "killed while it removes", lambda: _killed(ground, times))
    record.case("gc", "beside a training", lambda: _beside(ground))
    run_starving(ground, record, tries)


def run_starving(ground: Ground, record: Record, times: int = 20) -> None:
    """`evaluate` again and again, from nothing of its own, beside gc in a loop that knows no age."""
    if "evaluate" in ground.stages:
        record.case("gc", f"beside evaluate, {times} times", lambda: _starving(ground, times))


def _killed(ground: Ground, times: int) -> tuple[str, list[str]]:
    draw = random.Random(f"{ground.seed}/gc")
    findings: list[str] = []
    kills = 0
    with ground.place() as place:
        for stage in ground.stages:
            run_stage(stage, place, ground.folder)
        for _ in range(times):
            _litter(ground, place, draw)
            before = survey(place)
            let_settle(place)
            kills += _kill_gc(place, ground.folder, draw)
            findings += harm(before, survey(place))
        code, text = collect(place, ground.folder)
        if code:
            findings.append(f"gc ended with {code}: {text[-900:]}")
        after = survey(place)
        findings += [*harm(before, after), *(f"left behind: {name}" for name in leftovers(after))]
    return f"{kills} kills, then 0 leftovers" if not findings else f"{kills} kills", findings


def _litter(ground: Ground, place: Place, draw: random.Random) -> None:
    """An output that nothing refers to, and the half of another."""
    stage, *flags = draw.choice(_GARBAGE)
    run_stage(stage, place, ground.folder, *flags)
    stage, *flags = draw.choice(_GARBAGE[:3])
    with Listener(ground.folder / "witness-litter", roots(place)) as listener:
        variables = {"YANMO_WITNESS": str(listener.path)}
        run = start_stage(stage, place, ground.folder, *flags, "--force", environment=variables)
        listener.on("open", f"/cas/{stage}/*/*/metrics.prom", 0, run.kill_all)
        run.wait()


def _kill_gc(place: Place, folder: Path, draw: random.Random) -> bool:
    """Kill gc at one of its removals; False when it was done before."""
    with Listener(folder / "witness-gc", roots(place)) as listener:
        run = start_gc(place, folder, YANMO_WITNESS=str(listener.path))
        left = draw.randrange(1, 12)
        while run.process.poll() is None:
            if sum(event.kind in _REMOVALS for event in listener.events) >= left:
                run.kill_all()
                break
            time.sleep(0.0005)
        return run.wait() == -9


def harm(before: Survey, after: Survey) -> list[str]:
    """What gc broke: outputs that are not whole, pointers that name another content or nothing.

    Outputs that nothing names may go: that is what gc is for.
    """
    changed = [n for n, digest in before.digests.items() if after.digests.get(n) != digest]
    return [*after.faults, *(f"pointer {name} changed" for name in changed)]


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
            code = run.wait()
            if code == 75:  # gc took an output that nothing named yet; the next try makes it again
                code = start_stage(stage, place, ground.folder).wait()
            if code:
                findings.append(f"{stage} beside gc ended with {code}: {run.text[-1200:]}")
        found, expected = survey(place), ground.profile.survey.digests
        findings += found.faults
        findings += [f"{n}: other content" for n in expected if found.digests.get(n) != expected[n]]
    return f"{rounds} rounds of gc" + ("" if findings else "; same digests"), findings


_OF_EVALUATE = ("evaluate", "baselines", "writing", "contamination")


def _starving(ground: Ground, times: int) -> tuple[str, list[str]]:
    """How many of `times` evaluations end with 0 at once; each has nothing of an earlier one to take up."""
    codes: Counter[int] = Counter()
    findings: list[str] = []
    rounds = 0
    with ground.place() as place:
        for stage in ground.stages[: ground.stages.index("evaluate")]:
            run_stage(stage, place, ground.folder)
        for _ in range(times):
            _forget_evaluation(place)
            place.backdate(2 * 3600)
            run = start_stage("evaluate", place, ground.folder)
            while run.process.poll() is None:
                gc = start_gc(place, ground.folder)
                if code := gc.wait():
                    findings.append(f"gc beside evaluate ended with {code}: {gc.text[-900:]}")
                rounds += 1
            code = run.wait()
            codes[code] += 1
            if code:
                findings.append(f"evaluate beside gc ended with {code}: {run.text[-600:]}")
        found, expected = survey(place), ground.profile.survey.digests
        findings += found.faults
        made = [n for n in expected if found.digests.get(n)]
        findings += [f"{n}: other content" for n in made if found.digests[n] != expected[n]]
        if not any(n.endswith("/evaluate.json") for n in made) and not codes.keys() - {0}:
            findings.append("no evaluation is there at the end")
    return f"{rounds} rounds of gc; runs by exit code: {dict(codes)}", findings


def _forget_evaluation(place: Place) -> None:
    """Remove what evaluate made: its outputs, parts, pointers and work."""
    names = place.names()
    parts = tuple(f"{top}/{part}/" for top in ("cas", "runs") for part in _OF_EVALUATE)
    pointers = {f"pointers/{CHANNEL}/{part}.json" for part in _OF_EVALUATE}
    place.delete([n for n in names if n.startswith(parts) or n in pointers])
