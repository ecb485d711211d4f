"""What node 0 knows of another node: its connection, whether it is ready, and how its ranks ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from yanmo.train.nodes.wire import Message, Wire
from yanmo.train.supervision.ending import RankLook


@dataclass
class NodeEnd:
    """How the ranks of another node ended, as its supervisor saw it."""

    codes: dict[int, int] = field(default_factory=dict)
    looks: dict[int, RankLook] = field(default_factory=dict)
    doings: dict[int, str] = field(default_factory=dict)
    said: dict[int, str] = field(default_factory=dict)
    killed: list[int] = field(default_factory=list)
    """Ranks that ended without a word where the system killed processes for memory."""
    tail: str = ""

    @classmethod
    def from_message(cls, value: Message) -> NodeEnd:
        """What `Follower` sent."""
        looks = {int(r): RankLook(str(s), bool(a)) for r, (s, a) in value["looks"].items()}
        codes = {int(r): int(c) for r, c in value["codes"].items()}
        doings, said = ({int(r): str(t) for r, t in value[n].items()} for n in ("doings", "said"))
        return cls(codes, looks, doings, said, [int(r) for r in value["killed"]], str(value["tail"]))


@dataclass
class Node:
    """Another node."""

    wire: Wire
    is_ready: bool = False
    end: NodeEnd | None = None
