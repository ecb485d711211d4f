"""Which rank ended a training, and why: not the ones that waited for it in a collective.

What tells it, in this order:

1. A rank that failed by itself says so (job.Status); the first of them counts, and none that only lost its
   connection to another. A crash by a signal that came before it counts more.
2. Where watchdogs ended ranks that made no progress: the rank that cannot even say so stands still; else the
   one whose main thread is in no collective; else the one whose step is the lowest.
3. A rank without a word was killed; its exit code says by which signal, and which was the first (ranks.py).

Alternative not taken: torchelastic's error files. They hold the exception of a rank that raises, which a
status has already, and nothing of one that is killed or stands still.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from yanmo.common.errors import ERROR_OF, ExitCode, WorkerLost
from yanmo.store.runs.failure_card import Details, attach
from yanmo.train.health.watchdog import TRAINING
from yanmo.train.job import Status

E = TypeVar("E", bound=Exception)
_AGAIN = "run the same command again to go on from the last checkpoint"


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
    tail: str = ""
    """Last lines of the workers' log."""
    of_a_node: int = 0
    """Ranks of each node, where there are several."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", self.own or range(self.ranks))

    def doing(self, rank: int) -> str:
        """Return what it did last: by its own words, else by its file, which may be a second older."""
        said = next((status.doing for status in self.statuses if status.rank == rank), "")
        return said or self.doings.get(rank, "")

    def whose(self, rank: int) -> str:
        """Return `rank 1 of 2, in training step 5`."""
        doing = self.doing(rank)
        node = f" on node {rank // self.of_a_node}" if self.of_a_node else ""
        return f"rank {rank} of {self.ranks}{node}" + (f", in {doing}" if doing else "")


def raise_failure(ending: Ending) -> None:
    """Raise the error that ended the workers, so that the stage ends with its exit code.

    Raises:
        WorkerLost: a rank left no status, and no other one failed by itself; or one made no progress.
        UsageError, DataError, StorageError, EnvironmentFault: the first rank that failed by itself raised it.
        RuntimeError: it raised another error, with its traceback.
    """
    failed = [s for s in ending.statuses if s.state == "failed"]
    raised = [s for s in failed if not s.follows and not s.hung]
    hung = [s for s in failed if s.hung]
    missing = sorted(set(ending.own) - {s.rank for s in ending.statuses})
    if failed and not hung and all(ending.codes.get(rank) == -signal.SIGTERM for rank in missing):
        missing = []  # they were asked to end as that one had failed
    # Those that are left are ended by SIGTERM.
    by_signal = [rank for rank, code in ending.codes.items() if code < 0 and -code != signal.SIGTERM]
    signalled = [rank for rank in by_signal if rank in missing]
    crashed = next((rank for rank in signalled if -ending.codes[rank] != signal.SIGKILL), None)
    if crashed is not None and not _came_first(ending, raised, crashed):
        raise _lost(ending, crashed)
    if raised:
        raise _raised(ending, min(raised, key=lambda s: s.time))
    if hung:
        asked = {rank for rank in missing if ending.codes.get(rank) == -signal.SIGTERM}  # those do not stand
        frozen = (rank for rank in missing if rank in ending.doings and rank not in asked)
        raise _standing_still(ending, hung, next(frozen, None))
    never = [rank for rank in missing if rank not in ending.doings]
    if never and not signalled:
        raise _never(ending, never[0])
    if missing:
        by_code = [rank for rank in ending.codes if rank in missing]
        raise _lost(ending, (signalled or by_code or missing)[0])
    if failed:
        raise _cut_off(ending, min(failed, key=lambda s: s.time))


def describe(ending: Ending, error: E, rank: int | None, why: str, others: str) -> E:
    """Return the error, with what the card says beside it.

    Args:
        rank: the one that ended the training; None where that cannot be told.
        others: what became of the other ranks.
    """
    where = ending.whose(rank) if rank is not None else f"all {ending.ranks} ranks"
    attach(error, Details(where=where, why=why, others=_others(ending, rank, others)))
    return error


def _came_first(ending: Ending, raised: Sequence[Status], rank: int) -> bool:
    """Return whether a rank that raised an error ended before `rank` did."""
    order = list(ending.codes)
    return any(s.rank in order and order.index(s.rank) < order.index(rank) for s in raised)


def _standing_still(ending: Ending, reports: Sequence[Status], silent: int | None) -> WorkerLost:
    """Return the error of a training that made no progress.

    Args:
        reports: of ranks whose watchdog has ended them.
        silent: a rank that had begun and says nothing: a stopped process, a stuck driver.
    """
    first = reports[0]
    if silent is not None:
        error = WorkerLost(
            f"rank {silent} of {ending.ranks} stands still; {_AGAIN}. Rank {first.rank}: {first.message}"
        )
        return describe(ending, error, silent, "stands still: a stopped process or a driver", "waited for it")
    rank = _behind(ending, reports)
    if rank is None:
        error = WorkerLost(f"rank {first.rank}: {first.message}")
        why = "no rank goes on, each waits for another: which one is the cause cannot be told from outside"
        return describe(ending, error, None, why, "waited")
    message = next(s.message for s in reports if s.rank == rank)
    error = WorkerLost(f"rank {rank} of {ending.ranks} makes no progress: {message}")
    return describe(ending, error, rank, message, "waited for it")


def _behind(ending: Ending, reports: Sequence[Status]) -> int | None:
    """Return the rank that the others wait for; None where that cannot be told."""
    if ending.ranks == 1:
        return reports[0].rank
    busy = [s.rank for s in reports if not s.waits]
    if len(busy) == 1 and len(reports) == len(ending.own):
        return busy[0]
    steps = sorted((step, s.rank) for s in reports if (step := _step(ending.doing(s.rank))) is not None)
    if len(steps) == len(ending.own) and steps[0][0] < steps[1][0]:
        return steps[0][1]
    return None


def _step(doing: str) -> int | None:
    number = doing.removeprefix(TRAINING).strip()
    return int(number) if doing.startswith(TRAINING) and number.isdigit() else None


def _raised(ending: Ending, status: Status) -> Exception:
    kind = ERROR_OF.get(status.exit_code)
    if kind is None or status.exit_code == ExitCode.BUG:
        error: Exception = RuntimeError(f"rank {status.rank} failed:\n{status.trace}")
        return describe(ending, error, status.rank, f"{status.kind}: {status.message}", "lost it")
    error = kind(f"rank {status.rank}: {status.message}")
    return describe(ending, error, status.rank, status.message, "lost it")


def _cut_off(ending: Ending, status: Status) -> Exception:
    """Return the error of a rank that lost its connection to another, where none has failed."""
    where = " here; the logs of the other nodes say more" if len(ending.own) < ending.ranks else ""
    why = f"lost its connection to another rank, though none had failed{where}: {status.message}"
    error = WorkerLost(f"rank {status.rank} of {ending.ranks} {why}; {_AGAIN}")
    return describe(ending, error, status.rank, why, "lost it")


def _never(ending: Ending, rank: int) -> Exception:
    error = WorkerLost(
        f"rank {rank} of {ending.ranks} never started: it was not found, or "
        "Python could not begin. Mend what the last lines of the log report, and run the same "
        f"command again:\n{ending.tail}"
    )
    return describe(ending, error, rank, "never started; the last lines of the log say more", "lost it")


def _lost(ending: Ending, rank: int) -> Exception:
    """Return the error of a rank that ended without a word."""
    code = ending.codes.get(rank, 0)
    if code < 0 and -code != signal.SIGKILL:
        name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
        why = f"was ended by {name} (a crash in a library or a driver)"
    elif code > 0:
        why = f"ended with exit code {code} and without a word"
    else:
        why = f"was killed{' by SIGKILL' if code else ''} (for lack of memory, or by hand)"
    error = WorkerLost(
        f"rank {rank} of {ending.ranks} {why}; {_AGAIN}. Last lines of the workers:\n{ending.tail}"
    )
    return describe(ending, error, rank, why, "lost it")


def _others(ending: Ending, rank: int | None, did: str) -> tuple[str, ...]:
    """Return what the other ranks did, those of one kind together."""
    found: dict[str, list[int]] = {}
    for other in ending.own:
        if other != rank:
            doing = ending.doing(other)
            found.setdefault(f"{did}, in {doing}" if doing else "had not begun", []).append(other)
    return tuple(
        f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} {what}" for what, ranks in found.items()
    )
