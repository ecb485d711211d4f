"""What is looked at after each night, from outside: the objects as S3 lists them, by pyarrow and json.

Each check returns what must not be and is, in words. `yanmo store verify` is asked too, and then every object
is read and compared once more by a reader that shares no code with it (torture/place.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torture.place import Place, Survey, lost, survey

from nights.plan import COPY, MOJIBAKE, Night
from nights.scorer import allowed
from nights.texts import folded, stored_texts

_LEASE_SECONDS = 90.0
"""Longest time after a night for what a killed run held to run out (60 s) and be gone."""


def store_is_whole(
    place: Place, before: Survey | None, verify: Callable[[], tuple[int, str]]
) -> tuple[Survey, list[str]]:
    """Every byte is as its manifest says, by two readers, and nothing that was committed is gone."""
    code, said = verify()
    found = [] if code == 0 else [f"yanmo store verify ended with {code}: {said[-400:]}"]
    now = survey(place)
    found += now.faults
    return now, found + (lost(before, now) if before else [])


def nothing_is_left(place: Place, running: Callable[[], list[str]]) -> list[str]:
    """No process or pod, no lease that is held, no unfinished upload; leases get their time to run out."""
    end = time.monotonic() + _LEASE_SECONDS
    while True:
        found = [f"still running: {name}" for name in running()]
        found += [f"unfinished upload: {name}" for name in place.uploads()]
        found += [f"lease held: {name}" for name in held_leases(place)]
        if not found or time.monotonic() > end:
            return found
        time.sleep(2)


def held_leases(place: Place) -> list[str]:
    """Names of leases whose time has not run out."""
    names = [name for name in place.names() if name.endswith("/LEASE.json")]
    return [name for name in names if json.loads(place.read(name))["expires_at"] > time.time()]


def poison_is_out(place: Place, channel: str, night: Night, poison: list[str]) -> list[str]:
    """No text of the evaluation set and no garbled one is in the training text.

    Args:
        poison: the texts of the night's poisoned files.
    """
    curated = reference(place, channel, "curate")
    pinned = reference(place, channel, "evaluation_set")
    if curated is None or pinned is None:
        return ["the channel has no documents or no evaluation set"]
    learned = {folded(row["text"]) for row in stored_texts(place, output(curated), "train")}
    kept = {folded(row["text"]) for row in stored_texts(place, output(pinned), "test")}
    found = [f"{len(learned & kept)} texts of the evaluation set are learned from"] if learned & kept else []
    garbled = {folded(text) for text in poison} & learned if night.data in (COPY, MOJIBAKE) else set()
    return found + ([f"{len(garbled)} poisoned texts are learned from"] if garbled else [])


def evaluation_set_stays(place: Place, channel: str, before: str) -> tuple[str, list[str]]:
    """The digest of the channel's evaluation set; it never changes."""
    now = (reference(place, channel, "evaluation_set") or {}).get("content_digest", "")
    changed = before and now != before
    return now, [f"the evaluation set changed from {before[:12]} to {now[:12]}"] if changed else []


def champion_is_no_worse(before: float | None, now: float, seeds_bits: list[float]) -> list[str]:
    """Bits per character on fresh texts, of the champion before and of a new one."""
    if before is None or len(seeds_bits) < 4:
        return []
    limit = allowed(seeds_bits)
    if now - before <= limit:
        return []
    return [
        f"the new champion has {now:.3f} bits on fresh texts, the one before {before:.3f}: "
        f"worse by more than {limit:.3f}, which the seed alone explains"
    ]


def reference(place: Place, channel: str, name: str) -> dict[str, Any] | None:
    """What a pointer of the channel names; None where there is no such pointer."""
    try:
        found: dict[str, Any] = json.loads(place.read(f"pointers/{channel}/{name}.json"))
    except Exception as error:
        if type(error).__name__ in ("FileNotFoundError", "S3Error"):
            return None
        raise
    return found


def output(of: dict[str, Any]) -> str:
    """Folder of the output that a reference names."""
    return str(Path(of["manifest_uri"]).parent)


def download(place: Place, of: dict[str, Any], folder: Path) -> Path:
    """Every file of an output below `folder`, read straight from where it lies."""
    manifest = json.loads(place.read(of["manifest_uri"]))
    for file in manifest["files"]:
        path = folder / file["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(place.read(f"{output(of)}/{manifest['attempt']}/{file['path']}"))
    return folder
