"""Whole objects in wrong places: exchanged, replaced by older ones, or holding other JSON.

Every object is sound by itself, so no checksum finds it. Right are: a reader ends with 65 and names the
object, or gives exactly the right content; `yanmo store verify` ends with 65; so does `gc --delete`, which
then has removed and changed nothing at all.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torture.flips import Trial, flipped
from torture.ground import Ground, Record
from torture.place import Place, survey
from torture.stages import CHANNEL, run_stage, start
from torture.tools import MODULE, start_gc

READERS = {
    "evaluation_set": "curate",
    "curate": "balance",
    "balance": "tokenize",
    "evaluate": "promote",
    "train": "promote",
    "champion": "promote",
}
"""Pointer, or stage of an output -> a stage that reads it."""
JUNK = (b"{}", b"null", b"[]", b'""', b"", b"0", b'{"schema": "yanmo.reference/1"}')
"""What a pointer or a record holds instead; with these: a later schema, half of itself, a manifest."""
_POINTERS = f"pointers/{CHANNEL}/"


@dataclass(frozen=True)
class Change:
    """Objects and the bytes that they get."""

    objects: dict[str, bytes]
    readers: tuple[str, ...]


Draw = Callable[[Place, random.Random], Change]


def run(ground: Ground, record: Record, times: int = 6) -> None:
    """Each kind of misplacement `times` times, in one finished store."""
    kinds: dict[str, Draw] = {
        "manifests of two stages exchanged": _exchanged_manifests,
        "the manifest of another key": _other_key,
        "an older manifest of the key": _older_manifest,
        "two pointers exchanged": _exchanged_pointers,
        "a pointer holds other JSON": _junk_pointer,
        "a history record holds other JSON": _junk_record,
    }
    if "promote" not in ground.stages:
        del kinds["a history record holds other JSON"]
    if all(record.has("misplaced", kind) for kind in kinds):
        return
    with ground.place() as place:
        for stage in ground.stages:
            run_stage(stage, place, ground.folder)
        run_stage("balance", place, ground.folder, "--seed", "8", "--pointer", "none")
        _replace_once(ground, place)
        trials: dict[str, Trial] = {}
        for kind, draw in kinds.items():
            record.case("misplaced", kind, lambda k=kind, d=draw: _try(ground, place, trials, k, d, times))


def _replace_once(ground: Ground, place: Place) -> None:
    """Let `--force` mend a damaged file of balance: its older manifest then lies beside the new one."""
    (pinned,) = (_pointed(place, n) for n in place.names() if n == f"{_POINTERS}balance.json")
    prefix = f"cas/balance/{pinned['key']}/"
    name = next(n for n in place.names() if n.startswith(prefix) and n.endswith(".parquet"))
    good = place.read(name)
    place.write(name, flipped(good, random.Random(ground.seed)))
    place.forget_scratch()
    run_stage("balance", place, ground.folder, "--force")
    place.write(name, good)


def _try(
    ground: Ground, place: Place, trials: dict[str, Trial], kind: str, draw: Draw, times: int
) -> tuple[str, list[str]]:
    numbers = random.Random(f"{ground.seed}/{kind}")
    said: Counter[str] = Counter()
    findings: list[str] = []
    for _ in range(times):
        change = draw(place, numbers)
        readers = [r for r in dict.fromkeys(change.readers) if r in ground.stages]
        for reader in readers:
            if reader not in trials:
                trials[reader] = Trial(ground, place, reader)
        good = {name: place.read(name) for name in change.objects}
        shown = ", ".join(f"{n} <- {d[:40]!r}" for n, d in change.objects.items())
        for name, data in change.objects.items():
            place.write(name, data)
        place.forget_scratch()
        try:
            for fault in _tools(ground, place, said):
                findings.append(f"{shown}: {fault}")
            for reader in readers:
                what, log = trials[reader].read(*change.objects)
                said[f"reader: {what}"] += 1
                if what in ("wrong", "unnamed"):
                    findings.append(f"{shown}: {reader}: {what}: {log[-900:]}")
        finally:
            for name, data in good.items():
                place.write(name, data)
    findings += survey(place).faults
    return ", ".join(f"{text} {count}" for text, count in sorted(said.items())), findings


def _tools(ground: Ground, place: Place, said: Counter[str]) -> Iterator[str]:
    """What verify and gc did wrong."""
    look = start(MODULE, ("verify", "--store", place.uri), place, ground.folder)
    if code := _not_65(look.wait(), "verify", said):
        yield f"verify ended with {code}: {look.text[-600:]}"
    before = _contents(place)
    gc = start_gc(place, ground.folder)
    if code := _not_65(gc.wait(), "gc", said):
        yield f"gc ended with {code}: {gc.text[-600:]}"
    after = _contents(place)
    gone = sorted(before.keys() - after.keys())
    changed = sorted(n for n in before.keys() & after.keys() if before[n] != after[n])
    if gone or changed:
        said["gc harmed"] += 1
        yield f"gc removed {gone[:5]} ({len(gone)}), changed {changed[:5]} ({len(changed)})"
        for name in gone + changed:  # so that the next try begins with a sound store
            place.write(name, _BYTES[before[name]])


_BYTES: dict[str, bytes] = {}
"""sha256 -> bytes of what was seen: a few hundred kilobytes."""


def _contents(place: Place) -> dict[str, str]:
    """Name -> sha256 of every object."""
    found = {}
    for name in place.names():
        data = place.read(name)
        found[name] = hashlib.sha256(data).hexdigest()
        _BYTES[found[name]] = data
    return found


def _not_65(code: int, who: str, said: Counter[str]) -> str:
    said[f"{who} {code}"] += 1
    return "" if code == 65 else str(code)


def _pointed(place: Place, name: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(place.read(name))
    return found


def _pointers(place: Place) -> dict[str, dict[str, str]]:
    """Name -> reference of every pointer of the channel."""
    names = [n for n in place.names() if n.startswith(_POINTERS) and "/history/" not in n]
    return {name: _pointed(place, name) for name in names}


def _exchange(place: Place, one: str, two: str, readers: tuple[str, ...]) -> Change:
    return Change({one: place.read(two), two: place.read(one)}, readers)


def _readers(*names: str) -> tuple[str, ...]:
    return tuple(READERS[name] for name in names if name in READERS)


def _exchanged_manifests(place: Place, draw: random.Random) -> Change:
    named = {ref["manifest_uri"]: ref["stage"] for ref in _pointers(place).values()}
    one, two = _differing(named, draw)
    return _exchange(place, one, two, _readers(named[one], named[two]))


def _exchanged_pointers(place: Place, draw: random.Random) -> Change:
    named = {name: ref["stage"] for name, ref in _pointers(place).items()}
    one, two = _differing(named, draw)
    return _exchange(place, one, two, _readers(*(_short(name) for name in (one, two))))


def _differing(named: dict[str, str], draw: random.Random) -> tuple[str, str]:
    """Two names of different stages; at least one of them has a reader."""
    read = sorted(n for n in named if named[n] in READERS)
    one = draw.choice(read)
    return one, draw.choice(sorted(n for n in named if named[n] != named[one]))


def _short(name: str) -> str:
    return name.removeprefix(_POINTERS).removesuffix(".json")


def _other_key(place: Place, draw: random.Random) -> Change:
    """The manifest of another output of the stage; also of one whose files are there."""
    current = next(r for n, r in _pointers(place).items() if _short(n) == "balance")
    others = [n for n in place.names() if n.startswith("cas/balance/") and n.endswith("/MANIFEST.json")]
    other = draw.choice([n for n in others if n != current["manifest_uri"]])
    return Change({current["manifest_uri"]: place.read(other)}, _readers("balance"))


def _older_manifest(place: Place, draw: random.Random) -> Change:
    """What `--force` had replaced, back in its place."""
    current = next(r for n, r in _pointers(place).items() if _short(n) == "balance")
    prefix = current["manifest_uri"].removesuffix("MANIFEST.json")
    older = draw.choice([n for n in place.names() if n.startswith(f"{prefix}MANIFEST-")])
    return Change({current["manifest_uri"]: place.read(older)}, _readers("balance"))


def _junk(place: Place, name: str, draw: random.Random) -> bytes:
    good = place.read(name)
    later = good.replace(b"/1", b"/99", 1)
    manifest = place.read(next(n for n in place.names() if n.endswith("/MANIFEST.json")))
    return draw.choice([*JUNK, later, good[: len(good) // 2], manifest])


def _junk_pointer(place: Place, draw: random.Random) -> Change:
    name = draw.choice(sorted(n for n in _pointers(place) if _short(n) in READERS))
    return Change({name: _junk(place, name, draw)}, _readers(_short(name)))


def _junk_record(place: Place, draw: random.Random) -> Change:
    name = draw.choice([n for n in place.names() if n.startswith(f"{_POINTERS}history/")])
    pointer = place.read(f"{_POINTERS}champion.json")
    data = draw.choice([_junk(place, name, draw), pointer])
    return Change({name: data}, ("promote",))
