"""Everything in a store, from one listing, sorted into what it is.

Memory: about 400 bytes per object; a million objects are 400 MB, and a listing of S3 takes 1,000 requests.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from yanmo.common.errors import EnvironmentFault
from yanmo.nights.night import NIGHTS
from yanmo.store.objects import Leftover, NotSupportedHere, ObjectInfo, ObjectStore
from yanmo.store.output import KEY
from yanmo.store.runs.in_use import INPUTS, LEASE
from yanmo.store.runs.lease import is_held

log = logging.getLogger(__name__)
_OLD_MANIFEST = re.compile(r"MANIFEST-[0-9a-f]{12}\.json\Z")
_STAGE = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
_KFP = r"kfp/run-\d{8}-\d{6}-[0-9a-f]{8}/"
"""KFP's files of one `yanmo run`, and the lease that says that the run lives."""
_IS_STAGE = re.compile(rf"{_STAGE}\Z").match
_PLACES = {
    "runs": ("runs", re.compile(rf"runs/{_STAGE}/(?:unfinished/[^/]+|auto/[0-9a-f]{{64}})\.json\Z")),
    "kfp": ("kfp", re.compile(_KFP)),
    "sources": ("others", re.compile(r"sources/[0-9a-f]{64}\.json\Z")),
    "probes": ("probes", re.compile(r"probes/[0-9a-f]{32}\Z")),
    "pointers": ("pointers", re.compile(r"pointers/")),
    "nights": ("others", NIGHTS),
    "report.html": ("others", re.compile(r"report\.html\Z")),
}
"""What the store makes outside of keys: where it is entered. A store may be a whole bucket, in which others
write as well."""
_ANY = re.compile("")
_LOOSE = re.compile(
    rf"(?:(?:pointers|nights)/[^/]+(?:/history|/runs|/records)?|nights|sources|probes"
    rf"|runs/{_STAGE}/(?:auto|unfinished))/\.tmp-[^/]+\Z|{_KFP}"
)
"""Temporary files of these."""
KeyName = tuple[str, str]
"""Stage and key."""


@dataclass
class KeyFolder:
    """What lies below cas/<stage>/<key>/ and runs/<stage>/<key>/."""

    stage: str
    key: str
    manifest: ObjectInfo | None = None
    old_manifests: list[ObjectInfo] = field(default_factory=list)
    """Manifests replaced by `--force`, or set aside by a gc that was killed."""
    attempts: dict[str, list[ObjectInfo]] = field(default_factory=dict)
    work: list[ObjectInfo] = field(default_factory=list)
    """Work in progress, LEASE.json and INPUTS.json."""
    leftovers: list[Leftover] = field(default_factory=list)

    @property
    def name(self) -> KeyName:
        return self.stage, self.key

    @property
    def objects(self) -> Iterator[ObjectInfo]:
        """All below cas/."""
        if self.manifest:
            yield self.manifest
        yield from self.old_manifests
        for files in self.attempts.values():
            yield from files

    @property
    def lease(self) -> ObjectInfo | None:
        return self._named(LEASE)

    @property
    def inputs(self) -> ObjectInfo | None:
        """INPUTS.json: what its run rests on."""
        return self._named(INPUTS)

    @property
    def checkpoints(self) -> list[ObjectInfo]:
        """What a run could go on from: all work but its lease and its inputs."""
        beside = (self.lease, self.inputs)
        return [info for info in self.work if info not in beside]

    def _named(self, last: str) -> ObjectInfo | None:
        return next((info for info in self.work if info.name.endswith(f"/{last}")), None)

    @property
    def bytes(self) -> int:
        return sum(info.bytes for info in self.objects)

    @property
    def modified(self) -> float:
        """When anything of it was last written, Unix seconds by the store's clock."""
        return max((info.modified for info in [*self.objects, *self.work]), default=0.0)

    def __str__(self) -> str:
        return f"{self.stage}/{self.key[:12]}"


@dataclass
class Inventory:
    """One listing of a store."""

    keys: dict[KeyName, KeyFolder] = field(default_factory=dict)
    pointers: list[ObjectInfo] = field(default_factory=list)
    """Below pointers/: pointers, histories, records of runs and of channels."""
    runs: list[ObjectInfo] = field(default_factory=list)
    """Below runs/ but in no key's folder: records of what `auto` became, and of what channels have
    begun and not judged."""
    others: list[ObjectInfo] = field(default_factory=list)
    """Below nights/ and sources/, and report.html. It keeps nothing, and gc removes none of it."""
    kfp: list[ObjectInfo] = field(default_factory=list)
    probes: list[ObjectInfo] = field(default_factory=list)
    strays: list[ObjectInfo] = field(default_factory=list)
    """Anything else, which is not Yanmo's."""
    leftovers: list[Leftover] = field(default_factory=list)
    """Temporary files of pointers, which belong to no key."""
    bytes: int = 0
    """Of all that was listed."""

    def key(self, stage: str, key: str) -> KeyFolder:
        return self.keys.setdefault((stage, key), KeyFolder(stage, key))


def take(store: ObjectStore, prefix: str = "", *, leftovers: bool = True) -> Inventory:
    """List the store, or what lies below the folder `prefix` of it."""
    found = Inventory()
    for info in store.list(prefix):
        _sort_in(found, info)
        found.bytes += info.bytes
    if found == Inventory() and not prefix:
        log.warning("%s holds nothing; look at --store if you expected outputs there", store.uri)
    for leftover in _leftovers(store) if leftovers else ():
        name = key_of(leftover.name)
        if name or _LOOSE.match(leftover.name):  # else it is of others who write here, and never touched
            (found.key(*name) if name else found).leftovers.append(leftover)
    return found


def _leftovers(store: ObjectStore) -> Iterator[Leftover]:
    """Return what killed writers left. To list it takes more rights than to read, and some servers cannot."""
    try:
        yield from store.leftovers()
    except (EnvironmentFault, NotSupportedHere) as error:
        log.warning("unfinished uploads are left out: %s", error)


def key_of(name: str) -> KeyName | None:
    """The stage and key that the object `name` belongs to, or None."""
    parts = name.split("/")
    if len(parts) >= 4 and parts[0] in ("cas", "runs") and _IS_STAGE(parts[1]) and KEY.fullmatch(parts[2]):
        return parts[1], parts[2]
    return None


def local_run(name: str) -> str:
    """The folder of `yanmo run` that an object lies in, kfp/<run>; "" for others."""
    return "/".join(name.split("/")[:2]) if name.startswith("kfp/") else ""


def _sort_in(found: Inventory, info: ObjectInfo) -> None:
    parts = info.name.split("/")
    named = key_of(info.name)
    if named is None:
        place, form = _PLACES.get(parts[0], ("strays", _ANY))
        getattr(found, place if form.match(info.name) else "strays").append(info)
        return
    folder = found.key(*named)
    if parts[0] == "runs":
        folder.work.append(info)
    elif len(parts) > 4:
        folder.attempts.setdefault(parts[3], []).append(info)
    elif parts[3] == "MANIFEST.json":
        folder.manifest = info
    elif _OLD_MANIFEST.match(parts[3]):
        folder.old_manifests.append(info)
    else:
        found.strays.append(info)


def is_working(store: ObjectStore, folder: KeyFolder) -> bool:
    """Return whether a run may be making this key now."""
    return folder.lease is not None and is_held(store, folder.lease.name)
