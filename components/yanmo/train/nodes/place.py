"""Where the ranks of a node stand among those of all, and the network interface on which they meet."""

from __future__ import annotations

import fcntl
import socket
import struct
from pathlib import Path

from yanmo.train.config import TrainConfig
from yanmo.train.job import Place
from yanmo.train.options.nodes_options import longest_silence
from yanmo.train.supervision.ranks import LOOPBACK

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
    """Name of this machine's network interface by which a host is reached; "" where the system does not say.

    A name that leads to this machine's loopback, as many systems call themselves in /etc/hosts, stands for
    the interface that leads out: other nodes come there.
    """
    address = _address_towards(host)
    if address.startswith("127.") and not (host == "localhost" or host.startswith("127.")):
        address = _address_towards(_ELSEWHERE)
    return _interface_of(address)


def _address_towards(host: str) -> str:
    """This machine's address that packets to a host carry; "" where it cannot be said."""
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
