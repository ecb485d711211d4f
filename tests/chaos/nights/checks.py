"""What is looked at after each night, from outside: the objects as the store lists them, by pyarrow and json.

Each check returns what must not be and is, in words.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

from chaos.nights.texts import folded, stored_texts
from chaos.place import Place

CHANNEL = "nights"
_LEASE_SECONDS = 90.0
"""Longest time after a night for what a killed run held to run out (60 s) and be gone."""


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


def poison_is_out(place: Place, poison: list[str]) -> list[str]:
    """No text of the evaluation set and none of these garbled ones is in the training text."""
    curated, pinned = reference(place, "curate"), reference(place, "evaluation_set")
    if curated is None or pinned is None:
        return ["the channel has no documents or no evaluation set"]
    learned = {folded(row["text"]) for row in stored_texts(place, output(curated), "train")}
    kept = {folded(row["text"]) for row in stored_texts(place, output(pinned), "test")}
    found = [f"{len(learned & kept)} texts of the evaluation set are learned from"] if learned & kept else []
    garbled = {folded(text) for text in poison} & learned
    return found + ([f"{len(garbled)} poisoned texts are learned from"] if garbled else [])


def reference(place: Place, name: str) -> dict[str, Any] | None:
    """What a pointer of the channel names; None where there is no such pointer."""
    name = f"pointers/{CHANNEL}/{name}.json"
    return dict(json.loads(place.read(name))) if name in place.names() else None


def output(of: dict[str, Any]) -> str:
    """Folder of the output that a reference names."""
    return os.path.dirname(of["manifest_uri"])
