"""Two runs of one key at once, and clocks that jump."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.ground import Ground
from chaos.place import Place
from chaos.plan import Case
from chaos.start import start_stage

DAY = 86_400
CLOCKS = {
    "a day ahead": str(DAY),
    "jumps a day back before the commit": f"-{DAY}@MANIFEST",
    "a day behind": str(-DAY),
    "jumps a day ahead before the commit": f"{DAY}@MANIFEST",
}


def twins(ground: Ground) -> Iterator[Case]:
    """Each stage twice at the same moment, in one store; then with a second clock that is a day ahead."""
    with ground.place() as place:
        for stage in ground.stages:
            yield Case("twins", stage, lambda stage=stage: _twins(ground, place, stage))
        yield Case("twins", "curate --force", lambda: _twins(ground, place, "curate", "--force"))
    with ground.place() as place:
        yield Case("twins", "the second a day ahead", lambda: _twins(ground, place, "curate", clock=str(DAY)))


def _twins(ground: Ground, place: Place, stage: str, *flags: str, clock: str = "0") -> tuple[str, list[str]]:
    """Two processes of a stage."""
    clocks = ({}, {"YANMO_CLOCK_OFFSET": clock})
    runs = [start_stage(stage, place, ground.folder, *flags, environment=each) for each in clocks]
    findings = [f"ended with {code}: {run.text[-900:]}" for run in runs if (code := run.wait())]
    findings += ground.differences(place, is_complete=False)
    made = sum(f"committed {stage}/" in run.text for run in runs)
    if made > 1 and not flags:
        findings.append(f"both made {stage}: {[run.text[-600:] for run in runs]}")
    return f"{made} of 2 made it, both agree", findings


def clocks(ground: Ground) -> Iterator[Case]:
    """The whole pipeline under a wrong clock."""
    for name in list(CLOCKS)[: ground.times(4, 2)]:
        yield Case("clocks", name, lambda offset=CLOCKS[name]: _under_clock(ground, offset))


def _under_clock(ground: Ground, offset: str) -> tuple[str, list[str]]:
    with ground.place() as place:
        for stage in ground.stages:
            run = start_stage(stage, place, ground.folder, environment={"YANMO_CLOCK_OFFSET": offset})
            if code := run.wait():
                return "ended early", [f"{stage} ended with {code}: {run.text[-900:]}"]
        return "same content", ground.differences(place)
