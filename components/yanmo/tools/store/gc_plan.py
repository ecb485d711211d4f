"""What gc is to remove, in which order, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from yanmo.common.logs import human_seconds
from yanmo.store.manifest import Manifest
from yanmo.store.objects import Leftover, ObjectInfo
from yanmo.tools.store.chain import edges
from yanmo.tools.store.inventory import KeyFolder, KeyName

_DAY = 86400


@dataclass
class ToDelete:
    """What is to be removed of one key."""

    folder: KeyFolder
    objects: list[ObjectInfo]
    """In the order of removal."""
    why: str
    is_whole: bool = False
    """Whether the committed output itself is removed."""
    manifest: Manifest | None = None
    """Its committed manifest, unless there is none or it is damaged."""
    data: bytes = b""
    """The bytes of MANIFEST.json when this was decided."""
    leftovers: list[Leftover] = field(default_factory=list)

    @property
    def parts(self) -> list[ObjectInfo | Leftover]:
        """Everything that is to be removed."""
        return [*self.objects, *self.leftovers]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


@dataclass
class GcPlan:
    """One decision over a store."""

    kept: dict[KeyName, str] = field(default_factory=dict)
    """Output -> why it stays."""
    pinned: set[tuple[KeyName, str]] = field(default_factory=set)
    """Key and manifest sha256 of references that were met."""
    to_delete: list[ToDelete] = field(default_factory=list)
    """Outputs before those they were made from."""
    runs: list[ObjectInfo] = field(default_factory=list)
    """Records of runs that keep nothing any more; they go first, so that none names what is gone."""
    loose: list[tuple[ObjectInfo | Leftover, str]] = field(default_factory=list)
    """Objects of no key, and what they are."""
    restore: list[tuple[KeyName, str]] = field(default_factory=list)
    """Keys whose manifest was set aside (under the name that follows) and is needed again."""
    dangling: list[str] = field(default_factory=list)
    """References to what is gone already, in words."""

    @property
    def bytes(self) -> int:
        """What would be freed."""
        keys = sum(one.bytes for one in self.to_delete)
        return keys + sum(one.bytes for one in [*self.runs, *(one for one, _ in self.loose)])


def shown_age(seconds: float) -> str:
    """An age limit as it was given: `7 d`, `90 s`."""
    return f"{seconds / _DAY:g} d" if seconds >= _DAY else human_seconds(seconds)


def consumers_first(to_delete: list[ToDelete]) -> Iterator[ToDelete]:
    """Every output before those it was made from, so that a kill leaves no hole in a chain.

    What lies next to outputs comes first: abandoned work may name an output in its INPUTS.json. Keys may form
    a ring: a model gets its seed's noise as a part, which was made from it.
    """
    by_name = {one.folder.name: one for one in to_delete}
    done: set[KeyName] = set()
    order: list[ToDelete] = []
    for first in to_delete:
        waiting = [(first, False)]
        while waiting:
            one, opened = waiting.pop()
            if opened:
                order.append(one)
            elif one.folder.name not in done:
                done.add(one.folder.name)
                waiting.append((one, True))
                needed = edges(one.manifest) if one.manifest else ()
                names = [(edge.reference.stage, edge.reference.key) for edge in needed]
                waiting += [(by_name[name], False) for name in names if name in by_name]
    order.reverse()
    order.sort(key=lambda one: one.is_whole)  # stable
    yield from order
