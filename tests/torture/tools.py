"""`yanmo store`, as the torture uses it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from torture.place import Place, Survey
from torture.stages import start

MODULE = "yanmo.store"
_KEPT = ("runs/", "sources/", "probes/")


def has_gc() -> bool:
    """Whether this version has the store's tools."""
    return importlib.util.find_spec(MODULE) is not None


def collect(place: Place, folder: Path) -> tuple[int, str]:
    """Run gc for everything of any age; its exit code and log."""
    run = start(MODULE, ("gc", "--store", place.uri, "--older-than", "0", "--delete"), place, folder)
    return run.wait(), run.text


def leftovers(found: Survey) -> list[str]:
    """Objects of the output tree that nothing accounts for, and files that were being written."""
    unnamed = found.names - found.reachable
    return sorted(n for n in unnamed if ".tmp-" in n or not n.startswith(_KEPT))
