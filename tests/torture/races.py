"""Two runs of one key at once, and clocks that jump."""

from __future__ import annotations

from torture.ground import Ground, Record
from torture.place import Place, leftovers, survey
from torture.stages import CHANNEL, Run, start_stage

DAY = 86_400
CLOCKS = {
    "a day ahead": str(DAY),
    "a day behind": str(-DAY),
    "jumps a day ahead before the commit": f"{DAY}@MANIFEST",
    "jumps a day back before the commit": f"-{DAY}@MANIFEST",
}


def run_twins(ground: Ground, record: Record) -> None:
    """Each stage twice at the same moment, in the same store."""
    if all(record.has("twins", stage) for stage in ground.stages):
        return
    with ground.place() as place:
        for stage in ground.stages:
            record.case("twins", stage, lambda stage=stage: _twins(ground, place, stage, {}, ()))
        again = ("--force",)
        record.case("twins", "curate --force", lambda: _twins(ground, place, "curate", {}, again))


def run_clocks(ground: Ground, record: Record, names: tuple[str, ...] = tuple(CLOCKS)) -> None:
    """The whole pipeline under a wrong clock; then one run beside another whose clock is a day ahead."""
    for name in names:
        record.case("clock", name, lambda offset=CLOCKS[name]: _under_clock(ground, offset))
    record.case("clock", "a second run a day ahead", lambda: twins_in_time(ground))


def _under_clock(ground: Ground, offset: str) -> tuple[str, list[str]]:
    findings: list[str] = []
    with ground.place() as place:
        for stage in ground.stages:
            run = start_stage(stage, place, ground.folder, environment={"YANMO_CLOCK_OFFSET": offset})
            code = run.wait()
            if code:
                findings.append(f"{stage} ended with {code}: {run.text[-900:]}")
                break
        findings += _check(ground, place)
    return "same digests" if not findings else "see findings", findings


def twins_in_time(ground: Ground) -> tuple[str, list[str]]:
    """The second of two runs has a clock that is a day ahead."""
    with ground.place() as place:
        return _twins(ground, place, "curate", {"YANMO_CLOCK_OFFSET": str(DAY)}, ())


def _twins(
    ground: Ground, place: Place, stage: str, second: dict[str, str], flags: tuple[str, ...]
) -> tuple[str, list[str]]:
    """Two processes of a stage; `second` are the variables of the second one."""
    runs = [
        start_stage(stage, place, ground.folder, *flags),
        start_stage(stage, place, ground.folder, *flags, environment=second),
    ]
    findings = [f"ended with {code}: {run.text[-900:]}" for run in runs if (code := run.wait())]
    findings += _check(ground, place, complete=False)
    made = sum(_committed(run, stage) for run in runs)
    if made > 1 and not flags:
        findings.append(f"both made {stage}: {[run.text[-600:] for run in runs]}")
    return f"{made} of 2 made it, both agree", findings


def _committed(run: Run, stage: str) -> bool:
    return f"committed {stage}/" in run.text


def _check(ground: Ground, place: Place, complete: bool = True) -> list[str]:
    """What is wrong in the store, compared with the undisturbed run."""
    found = survey(place)
    expected = ground.profile.survey.digests
    findings = [*found.faults]
    for name in expected if complete else found.digests:
        if found.digests.get(name) != expected.get(name):
            findings.append(f"{name} of {CHANNEL}: {found.digests.get(name)}, expected {expected.get(name)}")
    return findings + [f"left behind: {name}" for name in leftovers(found)]
