"""How the supervisor and its workers communicate: files in the run's folder.

    job.json             what to train: options, store, references, hours     supervisor -> workers
    stop                 exists: save and end                                 supervisor -> workers
    heartbeats/          touched while a rank makes progress                  workers -> supervisor
    metrics.jsonl        one line per interval, validation and event          workers -> supervisor
    trace.json.gz        the profiler's trace (--profile)                     workers -> supervisor
    micro_batch.json     rows that fitted into memory, after some did not     supervisor
    workers.log          stdout and stderr of the workers                     supervisor
    export/              the finished model and result.json; appears whole    workers -> supervisor
    checkpoints/
    nodes/1/             of several nodes' shared folder, what belongs to node 1 alone: its own job.json,
                         heartbeats and workers.log

How a rank ended is a marked line in its log, which is a pipe: an exit code says little, and a file could not
be written to a full disk, which is one possible ending.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yanmo.common.errors import advice, exit_code
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import store_of
from yanmo.store.output import Output, open_reference
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import forget_heartbeats

STOP, METRICS, EXPORT, CHECKPOINTS, RESULT = "stop", "metrics.jsonl", "export", "checkpoints", "result.json"
MICRO_BATCH, TRACE = "micro_batch.json", "trace.json.gz"
NODES = "nodes"
NODES_FILE, PARTS = "NODES.json", "parts"
"""What a training on several nodes has in the store: what node 0 tells the others (nodes/record.py), and
parts of checkpoints on their way to it."""
MEETING = "YANMO_RANKS"
"""The variable that names the file in which the ranks of one node meet."""


@dataclass(frozen=True)
class Place:
    """Where the ranks of one node stand among those of all nodes."""

    node: int
    nnodes: int
    ranks: int
    """Of each node."""
    address: str
    """Of rank 0, as this node reaches it."""
    port: int
    meeting: str
    """What this start of all ranks is called where they meet: an earlier one's never meet them."""
    interface: str = ""
    """The network interface on which gloo connects the ranks; "" leaves it to gloo."""
    parts: str = ""
    """Where in the store parts of checkpoints are handed on; of one start alone."""
    step_seconds: float = 0.0
    """Longest time without progress in a training step; 0 for ever."""
    silence_seconds: float = 0.0
    """How long a rank's process may give no sign of life; 0 for ever."""

    @property
    def first_rank(self) -> int:
        return self.node * self.ranks


@dataclass(frozen=True)
class WorkerJob:
    """What the workers are started with."""

    options: TrainConfig
    """The micro batch may be a halved one."""
    store: str
    token_cache: Reference
    model: Reference | None
    folder: Path
    ends_at: float | None = None
    """Unix seconds after which the workers save and end; None for never."""
    reason: str = ""
    """Why they end at that time, for the log."""
    note: str = ""
    """Why the settings differ from the given options; recorded in metrics.jsonl."""
    place: Place | None = None
    """Where this node's ranks stand, of several nodes."""

    @property
    def own_ranks(self) -> range:
        """Of this node."""
        first = self.place.first_rank if self.place else 0
        return range(first, first + self.options.ranks)

    @property
    def own(self) -> Path:
        """The folder of what belongs to this node alone; with one node it is the run's."""
        node = self.place.node if self.place else 0
        return self.folder / NODES / str(node) if node else self.folder

    def write(self) -> Path:
        """Write `job.json` into the node's own folder."""
        value = dataclasses.asdict(self) | {"folder": str(self.folder)}
        self.own.mkdir(parents=True, exist_ok=True)
        path = self.own / "job.json"
        path.write_text(json.dumps(value, indent=1), encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: Path) -> WorkerJob:
        """Read what `write` wrote."""
        value = json.loads(path.read_text(encoding="utf-8"))
        kinds = {"options": TrainConfig, "token_cache": Reference, "model": Reference, "place": Place}
        given = {name: kind(**value[name]) for name, kind in kinds.items() if value[name] is not None}
        return cls(**value | given | {"folder": Path(value["folder"])})

    def open(self, reference: Reference) -> Output:
        """Return the output that a reference of this job names."""
        return open_reference(store_of(self.options, self.store), reference)


class PeerFailed(RuntimeError):
    """Another rank failed, and its message says why; this rank stops because of it."""


_MARK = b"yanmo-status "
_MOST = 1500
"""Most bytes of a message or traceback; a line below 4096 bytes goes through a pipe in one piece."""


@dataclass(frozen=True)
class Status:
    """How one rank ended."""

    rank: int
    state: str
    """done, paused or failed."""
    step: int = 0
    exit_code: int = 0
    message: str = ""
    trace: str = ""
    time: float = 0.0
    follows: bool = False
    """Whether the rank failed only because another one had failed."""
    out_of_memory: bool = False
    """Whether the micro batch did not fit."""
    hung: bool = False
    """Whether its watchdog ended it."""
    waits: bool = False
    """Whether it then stood in a collective, and so waited for another rank."""
    doing: str = ""
    """What it did when it failed."""
    kind: str = ""
    """The class of the error."""

    def send(self) -> None:
        """Write the status to stderr, which the supervisor reads."""
        sys.stderr.flush()
        text = json.dumps(dataclasses.asdict(self), ensure_ascii=False)
        os.write(2, _MARK + text.encode() + b"\n")  # one write: two ranks' lines do not mix


def parse_status(line: bytes) -> Status | None:
    """Return the status in a line of the workers' log; None if it is an ordinary line."""
    _, mark, text = line.partition(_MARK)  # after output of another process that has no line end
    if not mark:
        return None
    try:
        return Status(**json.loads(text))
    except (ValueError, TypeError):  # another process wrote into it: the rank counts as lost
        return None


def failure(
    rank: int, error: BaseException, *, follows: bool = False, waits: bool = False, doing: str = ""
) -> Status:
    """Return the status of a rank that ends with `error`.

    Args:
        follows: whether it failed only because another rank had failed.
        waits: whether it stood in a collective.
        doing: what it did.
    """
    text = advice(error) if isinstance(error, Exception) else repr(error)
    return Status(
        rank,
        "failed",
        exit_code=int(exit_code(error)),
        message=text.encode(errors="replace")[:_MOST].decode(errors="ignore"),
        trace=_shortened(error),
        time=time.time(),
        follows=follows,
        out_of_memory=is_out_of_memory(error),
        hung=isinstance(error, TimeoutError),
        waits=waits,
        doing=doing,
        kind=type(error).__name__,
    )


def _shortened(error: BaseException) -> str:
    """Its traceback in `_MOST` bytes: without the marks below code, and if that is still too long our own
    frames by name, then the end. A kernel of torch may lie thirty of its own frames below ours."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    whole = "\n".join(line for line in lines if line.strip(" ^~")).encode(errors="replace")
    if len(whole) <= _MOST:
        return whole.decode()
    package = Path(__file__).parents[1]
    frames = [
        f"  {Path(frame.filename).relative_to(package)}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(package)
    ]
    own = "\n".join(frames).encode(errors="replace")[-_MOST // 2 :] + b"\n  ...\n"
    return (own + whole[len(own) - _MOST :]).decode(errors="ignore")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the error says that the device or the machine had no memory left.

    On a GPU memory is asked for by torch's allocator, which has an error of its own for it, and beside it by
    CUDA's context, cuBLAS, Triton and NCCL, which have none.
    """
    words = (
        "DefaultCPUAllocator: can't allocate memory",
        "DefaultCPUAllocator: not enough memory",
        "CUDA error: out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "Triton Error [CUDA]: out of memory",
        "Cuda failure 2 'out of memory'",
    )
    own = isinstance(error, RuntimeError) and not isinstance(error, PeerFailed)
    by_words = own and any(word in str(error) for word in words)
    return by_words or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def forget_earlier_start(folder: Path) -> None:
    """Delete what an earlier start left for its workers."""
    (folder / STOP).unlink(missing_ok=True)
    forget_heartbeats(folder)


class NewLines:
    """A metrics.jsonl whose lines are read as they come; from its beginning where it was written again.

    Left out are lines that are not complete yet, and those that a power cut has damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file, self._read = path, 0, 0

    def read(self) -> list[dict[str, Any]]:
        """Return the lines since the last call."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            now = os.fstat(file.fileno())
            file.seek(max(self._read - 1, 0))
            is_same = now.st_ino == self._file and now.st_size >= self._read
            if not (is_same and (not self._read or file.read(1) == b"\n")):  # the training went back
                self._read = 0
            file.seek(self._read)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._file, self._read = now.st_ino, self._read + len(complete)
        lines = []
        for line in complete.splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict) and "step" in value:
                lines.append(value)
        return lines


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl."""
    return NewLines(path).read()


def is_calm(progress: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint with this `progress` was made after a step that is known to have gone well.

    One that was not is never rewound to, as it may have been made while the training was going wrong.
    """
    state = progress.get("health", {})
    return bool(state.get("bad") == 0 and state.get("high") == 0)


def forget_nodes(store: ObjectStore, work_name: str) -> None:
    """Delete what nodes left in the store beside a training whose model is committed.

    Args:
        work_name: where the work lies in the store.
    """
    forget_parts(store, work_name)
    store.delete(f"{work_name}/{NODES_FILE}")


def forget_parts(store: ObjectStore, work_name: str) -> None:
    """Delete parts of checkpoints that nobody fetches any more: of earlier starts, or of a whole training."""
    if store.is_shared:
        return  # ranks write into the folder of the checkpoint itself
    for found in list(store.list(f"{work_name}/{PARTS}")):
        store.delete(found.name)
