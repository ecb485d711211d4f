"""The card of a failure: a few lines that say which part failed, why, what is kept, and how it goes on.

One card, wherever a person looks first: in the log above the error's own line (what that does not say), in
the pod's termination message (`kubectl describe pod`), and in the store beside the work in progress, where
`yanmo status` and the next run find it:

    <store>/runs/<stage>/<key>/FAILURE.json   the last card; removed when the key is committed

KFP 2.17 keeps no artifact of a failed task, so a failure has no page.
"""

from __future__ import annotations

import dataclasses
import logging
import socket
from dataclasses import dataclass, field
from datetime import datetime

from yanmo.common.address import redacted
from yanmo.common.errors import DataError, EnvironmentFault, ExitCode, LeaseLost, advice, exit_code
from yanmo.common.logs import human_seconds
from yanmo.common.made_by import code
from yanmo.store.objects import ObjectStore
from yanmo.store.record import Record, utc_now
from yanmo.store.runs.in_use import work_name

log = logging.getLogger(__name__)
FILE = "FAILURE.json"
_LONGEST_LINE = 1000
_MEANINGS = {
    ExitCode.USAGE: "the options are wrong",
    ExitCode.DATA: "an input is wrong",
    ExitCode.BUG: "a bug",
    ExitCode.RETRY: "may pass: try again",
    ExitCode.ENVIRONMENT: "the machine lacks something",
}
_FOR_GOOD = (ExitCode.USAGE, ExitCode.DATA, ExitCode.ENVIRONMENT)
_DETAILS = "_yanmo_details"


@dataclass(frozen=True, kw_only=True)
class Details:
    """What a stage knows of its failure beside the error; `attach` hands it on with the error."""

    where: str = ""
    """The part that failed: `rank 1 of 2, in training step 5`."""
    why: str = ""
    """In one line, where the error says more than that."""
    others: tuple[str, ...] = ()
    """What the other parts did, a line each."""
    checkpoint: str = ""
    """What is kept of the work: `step 4`; "" for nothing."""
    saved_at: float = 0.0
    """When that was saved, Unix time."""
    is_resumable: bool = False
    """Whether the stage keeps checkpoints at all."""


def attach(error: BaseException, details: Details) -> None:
    """Let `details` travel with the error."""
    setattr(error, _DETAILS, details)


def details_of(error: BaseException) -> Details | None:
    """Return the details that were attached to the error, or to the one it was raised from."""
    found = getattr(error, _DETAILS, None)
    if found is None and error.__cause__ is not None:
        return details_of(error.__cause__)
    return found if isinstance(found, Details) else None


@dataclass(frozen=True, kw_only=True)
class Card:
    """A failure, in the words of the card."""

    stage: str
    exit_code: int
    why: str
    where: str = ""
    others: tuple[str, ...] = ()
    checkpoint: str = ""
    saved_at: float = 0.0
    is_resumable: bool = False
    command: str = ""
    """What runs the stage again, or goes on; "" where nobody can say it here."""
    run_id: str = ""
    machine: str = field(default_factory=socket.gethostname)
    made_by: str = field(default_factory=code)
    made_at: str = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        self._failed_at()

    @classmethod
    def of(cls, stage: str, error: BaseException, command: str = "", run_id: str = "") -> Card:
        """Return the card of an error that ended a stage."""
        details = details_of(error) or Details()
        why = details.why or (advice(error) if isinstance(error, Exception) else str(error))
        values = {f.name: getattr(details, f.name) for f in dataclasses.fields(Details)}
        values |= {"why": _short(why), "others": tuple(map(_short, details.others))}
        return cls(
            stage=stage, exit_code=int(exit_code(error)), command=redacted(command), run_id=run_id, **values
        )

    @property
    def first_line(self) -> str:
        """Return which stage failed, and with which exit code."""
        meaning = _MEANINGS.get(ExitCode(self.exit_code)) if self.exit_code in {*ExitCode} else None
        return f"{self.stage} failed with exit code {self.exit_code}" + (f" ({meaning})" if meaning else "")

    def details(self) -> list[str]:
        """Return the lines that say more than the error's own line in the log."""
        found = [f"failed: {self.where}"] if self.where else []
        found += self.others
        if self.checkpoint:
            age = max(self._failed_at() - self.saved_at, 0.0)
            found.append(f"last good checkpoint: {self.checkpoint}, {human_seconds(age)} old")
        elif self.is_resumable:
            found.append("last good checkpoint: none yet, it begins again")
        return found

    def lines(self) -> list[str]:
        """Return all of the card."""
        where = [f"which: {self.where}"] if self.where else []
        rest = self.details()[len(where) :]
        how = "to go on" if self.checkpoint else "to run it again"
        how += ", once that is mended" if self.exit_code in _FOR_GOOD else ""
        command = [f"{how}: {self.command}"] if self.command else []
        return [self.first_line, *where, f"why: {self.why}", *rest, *command]

    def _failed_at(self) -> float:
        return datetime.fromisoformat(self.made_at).timestamp()


CARD = Record("yanmo.failure/1", Card)


def _short(text: str) -> str:
    line = " ".join(redacted(text).split())
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 3] + "..."


def failure_name(stage: str, key: str) -> str:
    """Return the name of the object with the card of a key."""
    return f"{work_name(stage, key)}/{FILE}"


def read_card(store: ObjectStore, stage: str, key: str) -> Card | None:
    """Return the card of a key that is not committed; None where there is none, or none that can be read."""
    try:
        return CARD.read(store, failure_name(stage, key))
    except (OSError, DataError, EnvironmentFault) as error:
        log.debug("%s", error)
        return None


def keep_card(store: ObjectStore, key: str, card: Card, error: BaseException) -> None:
    """Put a card in the place of the last one of its key; no error where the store is what failed.

    Args:
        error: whose card it is; a run that lost its lease leaves the key's folder to the one that has it.
    """
    if isinstance(error, LeaseLost):
        return
    try:
        CARD.write(store, failure_name(card.stage, key), card)
    except (OSError, EnvironmentFault, DataError) as problem:
        log.debug("could not record the failure: %s", problem)


def forget_card(store: ObjectStore, stage: str, key: str) -> None:
    """Remove the card of a key: it is committed."""
    try:
        store.delete(failure_name(stage, key))
    except (OSError, EnvironmentFault) as error:
        log.debug("could not remove the record of an earlier failure: %s", error)
