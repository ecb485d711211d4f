"""What a channel's pointers name at the start of a run.

A pipeline follows pointers once, here; every later task is given references. Otherwise a task's key
would depend on when it started, and a promotion in another run could change a run under way.
"""

from __future__ import annotations

import json
import logging

from yanmo.options.fields import NONE
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.pointers import open_named, pointer_name, read_pointer

log = logging.getLogger(__name__)


def resolve(store: ObjectStore, channel: str, names: list[str]) -> dict[str, Reference | None]:
    """The reference behind each pointer of `names`, None where the channel has none.

    Raises:
        DataError: a pointer names an output that is not in the store.
    """
    found = {}
    for name in names:
        reference = found[name] = read_pointer(store, channel, name)
        output = open_named(store, reference, pointer_name(channel, name)) if reference else NONE
        log.info("%s of channel %s: %s", name, channel, output)
    return found


def body(reference: Reference | None) -> str:
    """What is passed on as an artifact: the reference as JSON, or the word `none`."""
    return reference.to_json() if reference else NONE + "\n"


def inputs_json(references: dict[str, Reference | None]) -> str:
    """The references in the format that `--inputs FILE` of every stage reads."""
    values = {name: vars(r) if r else NONE for name, r in references.items()}
    return json.dumps(values, indent=1)
