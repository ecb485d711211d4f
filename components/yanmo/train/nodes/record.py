"""What node 0 of several tells the others: what to train now, with what, and how it ended.

    <store>/runs/train/<key>/NODES.json

Node 0 alone writes it, which holds the lease of the key; the others read it, and the lease: while that is
held by the attempt that the record names, node 0 lives. So only who may write to the store can tell a node
anything. What the ranks need of each other they exchange themselves (backends/process_group.py).

Alternative not taken: messages between the supervisors. Whoever reached the port could end a training, or
have a node believe that it was paused, and a silent connection is not yet a lost node (a protocol of 1,400
lines that did all this noticed a node without power after 80 s; a collective's time limit does after 120).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from yanmo.common.errors import ERROR_OF, DataError, EnvironmentFault, ExitCode, UsageError, advice, exit_code
from yanmo.common.given_file import json_value
from yanmo.common.made_by import made_by
from yanmo.options.fields import by_kind, flag, spelled
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Pause
from yanmo.store.record import Record
from yanmo.store.runs.in_use import lease_name, work_name
from yanmo.store.runs.lease import is_live
from yanmo.train.config import STAGE, TrainConfig
from yanmo.train.job import NODES_FILE


@dataclass(frozen=True)
class End:
    """How node 0 ended, where it made no model: by an error, or paused."""

    code: int
    message: str
    is_pause: bool = False
    """Whether it saved and ended because it was asked to, or its hours were over: there is no other try."""

    @classmethod
    def of(cls, error: BaseException) -> End:
        """Of a try that an error ended."""
        if not isinstance(error, Exception):  # SIGTERM or Ctrl-C, while nothing could be saved
            return cls(int(ExitCode.RETRY), "asked to stop")
        return cls(int(exit_code(error)), advice(error))

    @classmethod
    def of_pause(cls, pause: Pause) -> End:
        """Of a try that saved and ended."""
        code = ExitCode.DONE if pause.is_planned else ExitCode.RETRY
        return cls(int(code), f"paused at {pause.where}: {pause.why}", is_pause=True)

    @property
    def error(self) -> Exception:
        """One that ends a stage with the same code."""
        return ERROR_OF.get(self.code, RuntimeError)(f"node 0: {self.message}")


@dataclass(frozen=True, kw_only=True)
class NodesRecord:
    """What NODES.json says."""

    attempt: str
    """Of node 0's try; its lease has the same."""
    same: Mapping[str, str]
    """What has to be the same on all nodes: versions, and options of execution, with others of which ranks
    would wait for each other in different collectives. Inputs and semantic options make the key."""
    window: int = 0
    """Number of this start of the ranks, from 1."""
    job: Mapping[str, Any] = field(default_factory=dict)
    """Of this start; empty before the first."""
    end: End | None = None

    @classmethod
    def of(cls, options: TrainConfig, attempt: str) -> NodesRecord:
        """Return what a node with these options, on this machine, would say."""
        versions = {name: text for name, text in made_by().items() if name != "processor"}
        settings = {flag(name): spelled(value)[:100] for name, value in by_kind(options, "execution").items()}
        return cls(attempt=attempt, same=versions | settings)

    def refusal(self, node: int, here: NodesRecord) -> Exception | None:
        """Return why node `node`, which would say `here`, cannot train with node 0; None if it can."""
        for name in sorted({*self.same, *here.same}):
            mine, first = (one.same.get(name) or "none" for one in (here, self))
            if mine != first:
                found = f"node {node} has {name} {mine}, and node 0 {first}"
                if name.startswith("--"):
                    return UsageError(f"{found}: give all nodes the same command")
                return EnvironmentFault(f"{found}: give all nodes the same image or installation")
        return None

    def write(self, store: ObjectStore, key: str) -> None:
        """Write the record, whatever was there.

        Raises:
            StorageError: not now.
        """
        NODES_RECORD.write(store, record_name(key), self)


NODES_RECORD = Record("yanmo.nodes/1", NodesRecord)


def record_name(key: str) -> str:
    """Return where the record of a key lies."""
    return f"{work_name(STAGE.name, key)}/{NODES_FILE}"


def read_nodes_record(store: ObjectStore, key: str) -> NodesRecord | None:
    """Return what node 0 has said last; None where there is nothing, or nothing that can be read."""
    try:
        return NODES_RECORD.read(store, record_name(key))
    except DataError:
        return None


def is_at_work(store: ObjectStore, key: str, attempt: str) -> bool:
    """Return whether a living run may hold the lease of the key for this attempt."""
    name = lease_name(STAGE.name, key)
    info = store.stat(name)
    try:
        data = store.read(name)[0]
        holder = json_value(data)["attempt"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False
    return info is not None and holder == attempt and is_live(data, store.clock() - info.modified)
