"""A case: one command in one bad situation, with a name that is enough to do it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torture.stages import CHANNEL

from hostile.engine import Ended, Engine
from hostile.ground import Ground
from hostile.rule import Expected, judge

Prepare = Callable[[Ground], None]
COMMON = ("--store=@store", f"--channel={CHANNEL}", "--metrics-port=-1", "--scratch=@case/scratch")
OF_TOOLS = ("--store=@store", "--scratch=@case/scratch")


Check = Callable[[Ground, Ended], list[str]]


def nothing(ground: Ground) -> None:
    """No damage."""


def no_check(ground: Ground, ended: Ended) -> list[str]:
    """Nothing but the rule."""
    return []


@dataclass(frozen=True)
class Strike:
    """A signal to a process below the command."""

    role: str
    """What the process is: see `zygote.role_of`."""
    signal: str
    """KILL, SEGV, TERM, STOP, or "STOP and CONT"."""
    after: float
    """Seconds after such a process is first seen."""


@dataclass(frozen=True)
class Case:
    """One command in one bad situation."""

    name: str
    """family/command/what."""
    argv: tuple[str, ...]
    """After `yanmo`; with @store, @in and @case for places of the ground."""
    expected: Expected
    prepare: Prepare = nothing
    """Brings the situation about; `nothing` says that the ground stays as it is."""
    environment: Mapping[str, str] = field(default_factory=dict)
    powerless: bool = False
    """Whether the command must obey modes and owners, though it may run as root."""
    gone: bool = False
    """Whether the folder that it runs in is removed first."""
    stop_after: float = 0.0
    """Seconds after which it is asked to end, where it may rightly work for long; 0 is never."""
    strike: Strike | None = None
    """What befalls a process that it starts."""
    check: Check = no_check
    """What must be true besides the rule; gives findings."""

    @property
    def family(self) -> str:
        """The part of the generator that it comes from."""
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class Tried:
    """A case and how it went."""

    case: Case
    ended: Ended
    findings: list[str]


def attempt(case: Case, ground: Ground, engine: Engine, *, forked: bool = True) -> Tried:
    """Do one case on a fresh ground."""
    ground.renew()
    if case.prepare is not nothing:
        ground.touch()
        case.prepare(ground)
        ground.publish()
    before = ground.look()
    own = {"YANMO_SCRATCH": "@case/scratch", "HOME": "@case", **case.environment}
    ended = engine.run(
        tuple(map(ground.fill, case.argv)),
        ground.cwd,
        environment=ground.environment | {name: ground.fill(text) for name, text in own.items()},
        powerless=case.powerless,
        gone=case.gone,
        stop_after=case.stop_after,
        forked=forked,
        strike=vars(case.strike) if case.strike else None,
    )
    after = ground.look()
    if after != before or case.gone or case.powerless or (ground.case / "scratch").exists():
        ground.touch()
    findings = judge(ended, case.expected, before, after) + case.check(ground, ended)
    return Tried(case, ended, findings)
