"""Which rank ended a training, and why: not the ones that waited for it in a collective.

What tells it, in this order:

1. A rank that failed by itself says so (job.Status); the first of them counts, and none that only lost its
   connection to another.
2. A rank whose process stands still (SIGSTOP, a debugger, a driver): the kernel says so, or its watchdog's
   thread no longer touches its file. The other ranks' watchdogs end them as they wait, and only report that.
3. Where all are alive and none goes on: the rank whose main thread is in no collective while others' are,
   else the one whose step is the lowest. Else nobody can tell, and the card says that.
4. A rank without a word was killed; its exit code says by which signal, and which was the first (ranks.py).

Alternative not taken: torchelastic's error files. They hold the exception of a rank that raises, which a
status has already, and nothing of one that is killed or stands still.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from yanmo.common.errors import (
    DataError,
    EnvironmentFault,
    ExitCode,
    StorageError,
    UsageError,
    WorkerLost,
)
from yanmo.store.runs.failure_card import Details, attach
from yanmo.train.health.watchdog import TRAINING, doings, pid_in
from yanmo.train.job import Status

E = TypeVar("E", bound=Exception)
_SHOWN_RANKS = 8
_FROZEN_STATES = {"T": "stopped by a signal", "t": "held by a debugger"}
"""States of /proc/<pid>/stat (proc_pid_stat(5)) in which a process cannot go on by itself."""
_IN_THE_KERNEL = "D"
_KINDS: dict[int, type[Exception]] = {
    ExitCode.USAGE: UsageError,
    ExitCode.DATA: DataError,
    ExitCode.RETRY: StorageError,
    ExitCode.ENVIRONMENT: EnvironmentFault,
}


@dataclass(frozen=True)
class RankLook:
    """A rank as the supervisor sees it from outside."""

    state: str = ""
    """Of its process, one letter; "" where the system does not say."""
    answers: bool = True
    """Whether its watchdog's thread runs."""

    @property
    def frozen(self) -> str:
        """Why it cannot go on by itself; "" where it can."""
        if self.state in _FROZEN_STATES:
            return _FROZEN_STATES[self.state]
        if self.answers:
            return ""
        stuck = self.state == _IN_THE_KERNEL
        return "stuck in the kernel: a driver or a disk" if stuck else "no thread of it runs: a stuck driver"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """All that is known of how the workers ended."""

    ranks: int
    """Of all nodes."""
    own: Sequence[int] = ()
    """Of this node, whose supervisor knows nothing of the others; by default all."""
    statuses: Sequence[Status]
    doings: Mapping[int, str] = field(default_factory=dict)
    """Of each rank that began, what it did last."""
    codes: Mapping[int, int] = field(default_factory=dict)
    """Exit codes of ranks that failed, negative for a signal, the first one first."""
    looks: Mapping[int, RankLook] = field(default_factory=dict)
    """The ranks at the moment when the first one failed."""
    said: Mapping[int, str] = field(default_factory=dict)
    """The last line of each rank, where there is one."""
    tail: str = ""
    """Last lines of the workers' log."""
    of_a_node: int = 0
    """Ranks of each node, where there are several."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", self.own or range(self.ranks))

    def doing(self, rank: int) -> str:
        """What it did last: by its own words, else by its file, which may be a second older."""
        said = next((status.doing for status in self.statuses if status.rank == rank), "")
        return said or self.doings.get(rank, "")

    def whose(self, rank: int) -> str:
        """`rank 1 of 2, in training step 5`."""
        doing = self.doing(rank)
        node = f" on node {rank // self.of_a_node}" if self.of_a_node else ""
        return f"rank {rank} of {self.ranks}{node}" + (f", in {doing}" if doing else "")


def looks_of(folder: Path, silent: Collection[int]) -> dict[int, RankLook]:
    """The ranks that have begun, as they are now.

    Args:
        silent: ranks whose watchdog's thread has not run for some time. It counts only where that of
            another rank has: a machine too busy for all of them stands still as a whole.
    """
    begun = list(doings(folder))
    tells = not set(begun) <= set(silent) or len(begun) == 1
    return {
        rank: RankLook(_process_state(pid_in(folder, rank)), rank not in silent if tells else True)
        for rank in begun
    }


def _process_state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def raise_failure(ending: Ending) -> None:
    """Raise the error that ended the workers, so that the stage ends with its exit code.

    Raises:
        WorkerLost: a rank left no status, and no other one failed by itself; or one made no progress.
        UsageError, DataError, StorageError, EnvironmentFault: the first rank that failed by itself raised it.
        RuntimeError: it raised another error, with its traceback.
    """
    failed = [s for s in ending.statuses if s.state == "failed"]
    causes = [s for s in failed if not s.follows]
    missing = sorted(set(ending.own) - {s.rank for s in ending.statuses})
    if failed and all(ending.codes.get(rank) == -signal.SIGTERM for rank in missing):
        missing = []  # they were asked to end as that one had failed
    frozen = _frozen(ending.looks)
    raised = [s for s in causes if not s.hung]
    signalled = [rank for rank in _by_signal(ending.codes) if rank in missing]
    crashed = next((rank for rank in signalled if _is_crash(ending, rank)), None)
    if crashed is not None and not (raised and _came_first(ending, raised, crashed)):
        raise _lost(ending, crashed)
    if raised:
        raise _raised(ending, min(raised, key=lambda s: s.time))
    if frozen is not None or causes:
        raise standing_still(ending, frozen, causes)
    never = [rank for rank in missing if rank not in ending.doings]
    if never and not signalled:
        raise _never(ending, never[0])
    if missing:
        by_code = [rank for rank in ending.codes if rank in missing]
        raise _lost(ending, (signalled or by_code or missing)[0])
    if failed:
        raise _cut_off(ending, min(failed, key=lambda s: s.time))


def _by_signal(codes: Mapping[int, int]) -> list[int]:
    """Ranks that a signal ended, the first one first; those that are left are ended by SIGTERM."""
    return [rank for rank, code in codes.items() if code < 0 and -code != signal.SIGTERM]


def _is_crash(ending: Ending, rank: int) -> bool:
    return -ending.codes[rank] != signal.SIGKILL


def _came_first(ending: Ending, raised: Sequence[Status], rank: int) -> bool:
    """Whether a rank that raised an error ended before `rank` did."""
    order = list(ending.codes)
    return any(s.rank in order and order.index(s.rank) < order.index(rank) for s in raised)


def _frozen(looks: Mapping[int, RankLook]) -> int | None:
    """The first rank whose process stands still."""
    return next((rank for rank, look in sorted(looks.items()) if look.frozen), None)


def standing_still(ending: Ending, rank: int | None, reports: Sequence[Status] = ()) -> WorkerLost:
    """The error of a training that made no progress.

    Args:
        rank: the one whose process is frozen; None where all are alive.
        reports: of ranks whose watchdog has ended them.
    """
    again = "run the same command again to go on from the last checkpoint"
    said = f". Rank {reports[0].rank}: {reports[0].message}" if reports else ""
    if rank is not None:
        why = f"stands still: {ending.looks[rank].frozen}" if rank in ending.looks else "stands still"
        error = WorkerLost(f"rank {rank} of {ending.ranks} {why}; {again}{said}")
        return _with(ending, error, rank, why, "waited for it")
    first = _behind(ending, reports)
    if first is None:
        error = WorkerLost(f"rank {reports[0].rank}: {reports[0].message}")
        unknown = (
            "no rank goes on, each waits for another: which one is the cause cannot be told from outside"
        )
        return _with(ending, error, reports[0].rank if ending.ranks == 1 else None, unknown, "waited")
    status = next(s for s in reports if s.rank == first)
    why = f"stands still, in no collective: {status.message}"
    others = " while the others wait for it" if ending.ranks > 1 else ""
    error = WorkerLost(f"rank {first} of {ending.ranks} makes no progress{others}: {status.message}")
    return _with(ending, error, first, why if others else status.message, "waited for it")


def of_frozen(ending: Ending, rank: int | None, error: Exception) -> None:
    """Put the rank that stands still onto the card of workers that had to be ended from outside.

    Args:
        rank: the one that stands still, where the supervisor knows.
    """
    rank = _frozen(ending.looks) if rank is None else rank
    if rank is None:
        where = f"all {ending.ranks} ranks" if ending.ranks > 1 else ending.whose(0)
        attach(error, Details(where=where, others=_others(ending, None, "did not stop")))
        return
    look = ending.looks.get(rank, RankLook())
    why = f"stands still: {look.frozen}" if look.frozen else ""
    attach(error, Details(where=ending.whose(rank), why=why, others=_others(ending, rank, "waited for it")))


def of_memory(ending: Ending, status: Status, error: Exception) -> None:
    """Put the rank whose memory was not enough onto the card."""
    details = Details(where=ending.whose(status.rank), others=_others(ending, status.rank, "lost it"))
    attach(error, details)


def _behind(ending: Ending, reports: Sequence[Status]) -> int | None:
    """The rank that the others wait for; None where that cannot be told."""
    if ending.ranks == 1:
        return reports[0].rank
    busy = [s.rank for s in reports if not s.waits]
    if len(busy) == 1 and len(reports) == len(ending.own):
        return busy[0]
    steps = {rank: _step(ending.doing(rank)) for rank in (s.rank for s in reports)}
    known = {rank: step for rank, step in steps.items() if step is not None}
    if len(known) == len(ending.own) and len(set(known.values())) > 1:
        lowest = min(known.values())
        last = [rank for rank, step in known.items() if step == lowest]
        return last[0] if len(last) == 1 else None
    return None


def _step(doing: str) -> int | None:
    number = doing.removeprefix(TRAINING).strip()
    return int(number) if doing.startswith(TRAINING) and number.isdigit() else None


def _raised(ending: Ending, status: Status) -> Exception:
    kind = _KINDS.get(status.exit_code)
    if kind is None:
        error: Exception = RuntimeError(f"rank {status.rank} failed:\n{status.trace}")
        return _with(ending, error, status.rank, f"{status.kind}: {status.message}", "lost it")
    error = kind(f"rank {status.rank}: {status.message}")
    return _with(ending, error, status.rank, status.message, "lost it")


def _cut_off(ending: Ending, status: Status) -> Exception:
    """Of a rank that lost its connection to another, where none has failed."""
    where = " here; the logs of the other nodes say more" if len(ending.own) < ending.ranks else ""
    why = f"lost its connection to another rank, though none had failed{where}: {status.message}"
    error = WorkerLost(
        f"rank {status.rank} of {ending.ranks} {why}; run the same command again to go on from the last "
        "checkpoint"
    )
    return _with(ending, error, status.rank, why, "lost it")


def _never(ending: Ending, rank: int) -> Exception:
    error = WorkerLost(
        f"rank {rank} of {ending.ranks} never started: it was not found, or "
        "Python could not begin. Mend what the last lines of the log report, and run the same "
        f"command again:\n{ending.tail}"
    )
    return _with(ending, error, rank, "never started; the last lines of the log say more", "lost it")


def _lost(ending: Ending, rank: int) -> Exception:
    """Of a rank that ended without a word."""
    code = ending.codes.get(rank, 0)
    if code < 0 and -code != signal.SIGKILL:
        why = f"was ended by {_signal_name(-code)} (a crash in a library or a driver)"
    elif code > 0:
        why = f"ended with exit code {code} and without a word"
    else:
        why = f"was killed{' by SIGKILL' if code else ''} (for lack of memory, or by hand)"
    error = WorkerLost(
        f"rank {rank} of {ending.ranks} {why}; run the same command again to go on from the last "
        f"checkpoint. Last lines of the workers:\n{ending.tail}"
    )
    return _with(ending, error, rank, why, "lost it")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _with(ending: Ending, error: E, rank: int | None, why: str, others: str) -> E:
    """The error, with what the card says beside it."""
    where = ending.whose(rank) if rank is not None else f"all {ending.ranks} ranks"
    attach(error, Details(where=where, why=why, others=_others(ending, rank, others)))
    return error


def _others(ending: Ending, rank: int | None, did: str) -> tuple[str, ...]:
    """What the other ranks did, those of one kind together, and the last line that each of some wrote."""
    found: dict[str, list[int]] = {}
    for other in ending.own:
        if other != rank:
            doing = ending.doing(other)
            what = f"{did}, in {doing}" if doing else "had not begun"
            found.setdefault(what, []).append(other)
    lines = [f"rank{'s' * (len(ranks) > 1)} {_listed(ranks)} {what}" for what, ranks in found.items()]
    said = [(r, text) for r, text in sorted(ending.said.items()) if r == rank or r < _SHOWN_RANKS]
    return (*lines, *(f"last line of rank {number}: {text[:200]}" for number, text in said))


def _listed(ranks: Sequence[int]) -> str:
    """`0, 2 to 7`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(str(a) if a == b else f"{a} to {b}" if b > a + 1 else f"{a}, {b}" for a, b in spans)
