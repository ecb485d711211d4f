"""Node 0 of several: what it tells the others in the store (record.py); and where ranks of a node stand."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import socket
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path

from yanmo.common.errors import EnvironmentFault
from yanmo.options.fields import by_kind
from yanmo.store.output import Pause
from yanmo.train.config import TrainConfig
from yanmo.train.job import PARTS, Place, WorkerJob, forget_parts
from yanmo.train.nodes.record import End, NodesRecord
from yanmo.train.options.machine_options import longest_silence
from yanmo.train.supervision.machine_check import TrainRun
from yanmo.train.supervision.ranks import LOOPBACK

log = logging.getLogger(__name__)
OF_A_START = ("ends_at", "reason", "note")
"""Fields of a job that node 0 decides by its clock, and for all."""


class Leader:
    """What this node, 0 of several, has told the others."""

    def __init__(self, run: TrainRun) -> None:
        self._run = run
        self._record = NodesRecord.of(run.options, run.attempt.id)
        self._say()

    def begin(self, task: WorkerJob, work_name: str) -> WorkerJob:
        """Have all nodes start their ranks; the job, with the place of this node's ranks.

        Args:
            work_name: where the work lies in the store.
        """
        window = self._record.window + 1
        meeting = f"{self._record.attempt}/{window}"
        job = {
            "options": by_kind(task.options, "semantic", "execution"),
            "token_cache": vars(task.token_cache),
            "model": vars(task.model) if task.model else None,
            "work": work_name,
            "meeting": meeting,
            "parts": f"{work_name}/{PARTS}/{meeting}",
            **{name: getattr(task, name) for name in OF_A_START},
        }
        self._record = dataclasses.replace(self._record, window=window, job=job)
        self._say()
        return dataclasses.replace(task, place=place_of(task.options, meeting, job["parts"]))

    def forget_parts(self) -> None:
        """Delete parts of checkpoints that an earlier start has left."""
        forget_parts(self._run.store, self._run.work_folder.name)

    def ends(self, end: End) -> None:
        """Tell how it ended; where that cannot be written, the lease that is given back says enough."""
        self._record = dataclasses.replace(self._record, end=end)
        try:
            self._say()
        except (OSError, EnvironmentFault) as error:
            log.warning("the other nodes are not told how this one ended: %s", error)

    def pauses(self, pause: Pause) -> None:
        """Tell that all has been saved."""
        self.ends(End.of_pause(pause))

    def _say(self) -> None:
        self._run.attempt.lease.check()  # what another run has written stays
        self._record.write(self._run.store, self._run.key)


@contextlib.contextmanager
def leading(run: TrainRun) -> Iterator[Leader]:
    """While inside, the other nodes are told what to train.

    Raises:
        StorageError: they cannot be told.
    """
    leader = Leader(run)
    try:
        yield leader
    except BaseException as error:
        leader.ends(End.of(error))
        raise


def tell_busy(run: TrainRun, why: str) -> None:
    """Tell the other nodes that nothing is trained, as another training of the channel is at work."""
    options: TrainConfig = run.options
    end = End(0, f"paused: {why}", is_pause=True)
    dataclasses.replace(NodesRecord.of(options, uuid.uuid4().hex[:12]), end=end).write(run.store, run.key)


_SIOCGIFADDR = 0x8915
_ELSEWHERE = "192.0.2.1"
"""An address of nobody's (RFC 5737), to ask which interface leads out; nothing is sent there."""


def place_of(options: TrainConfig, meeting: str, parts: str) -> Place:
    """Return where the ranks of the node stand that has these options; see `Place`."""
    host, port = options.meeting_point()
    limit = options.collective_seconds if options.hang_seconds else 0.0
    return Place(
        node=options.node_rank,
        nnodes=options.nnodes,
        ranks=options.ranks,
        address=host if options.node_rank else LOOPBACK,
        port=port,
        interface=interface_to(host),
        meeting=meeting,
        parts=parts,
        step_seconds=min(options.hang_seconds, limit),
        silence_seconds=longest_silence(limit),
    )


def interface_to(host: str) -> str:
    """Return the name of this machine's network interface by which a host is reached; "" where the system
    does not say.

    A name that leads to this machine's loopback, as many systems call themselves in /etc/hosts, stands for
    the interface that leads out: other nodes come there.
    """
    address = _address_towards(host)
    if address.startswith("127.") and not (host == "localhost" or host.startswith("127.")):
        address = _address_towards(_ELSEWHERE)
    return _interface_of(address)


def _address_towards(host: str) -> str:
    """Return this machine's address that packets to a host carry; "" where it cannot be said."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as asking:
            asking.connect(where)  # of a datagram's socket: nothing is sent
            return str(asking.getsockname()[0])
    except OSError:
        return ""


def _interface_of(address: str) -> str:
    if address.startswith("127."):
        return "lo" if Path("/sys/class/net/lo").exists() else "lo0"
    address = address.partition("%")[0]
    for _, name in socket.if_nameindex():
        if address and address in (_ipv4_of(name), *_ipv6_of(name)):
            return name
    return ""


def _ipv4_of(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            found = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:  # it has none
            return ""
    return socket.inet_ntoa(found[20:24])


def _ipv6_of(name: str) -> list[str]:
    try:
        rows = [line.split() for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()]
    except OSError:
        return []
    return [socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0])) for row in rows if row[-1] == name]
