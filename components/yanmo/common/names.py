"""Names of stages, and names that people give: both become parts of objects' names in a store."""

from __future__ import annotations

import re

NONE = "none"
"""Body of a reference file, or value of an option that names an output, for "there is none"."""
STAGES = ("curate", "balance", "tokenize", "train", "evaluate", "promote")
"""The stages of the road from text to champion, in their order. Each is a room of its name below `yanmo`."""
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")


def name_problems(flag: str, name: str) -> list[str]:
    """What is wrong with the name of a channel or a pointer; nothing where it may be one."""
    return [] if _PART.match(name) else [f"{flag} {name[:100]!r}: expected up to 100 letters, digits, - or _"]
