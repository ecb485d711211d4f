"""What a channel's pointers name at the start of a run.

A pipeline follows pointers once, here; every later task is given references. Otherwise a task's key
would depend on when it started, and a promotion in another run could change a run under way.
"""

from __future__ import annotations

import json
import logging

from yanmo.options.fields import NONE
from yanmo.resolve.config import ResolveOptions
from yanmo.stage.inputs import open_input
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import open_named, pointer_name, read_pointer

log = logging.getLogger(__name__)


POINTED = ("champion", "evaluation_set")
"""Pointers that a run follows here; an output of this task has the name of each."""


def resolve(store: ObjectStore, options: ResolveOptions) -> dict[str, Reference | None]:
    """Each output of this task -> what it refers to; None for nothing.

    Raises:
        DataError: a pointer or an option names an output that is not in the store.
    """
    found: dict[str, Reference | None] = {}
    channel = options.channel
    for name in POINTED:
        reference = found[name] = read_pointer(store, channel, name)
        output = open_named(store, reference, pointer_name(channel, name)) if reference else NONE
        log.info("%s of channel %s: %s", name, channel, output)
    start = _named(store, options.start_from, "--start-from", "train", found["champion"])
    found["start_model"] = start.reference if start else None
    tokenizer = _tokenizer(store, options.use_tokenizer, start, found["champion"])
    found["tokenizer"] = tokenizer.reference if tokenizer else None
    return found


def _named(
    store: ObjectStore, value: str, where: str, stage: str, champion: Reference | None
) -> Output | None:
    """The output that a field of the form names; None for none, and for a champion that is not there yet."""
    if value == "champion":
        if champion is None:
            log.info("%s champion: the channel has none yet, so a new one is made", where)
        return open_reference(store, champion) if champion else None
    output = open_input(store, value, where, stages=(stage,))
    log.info("%s: %s", where, output or NONE)
    return output


def _tokenizer(
    store: ObjectStore, value: str, start: Output | None, champion: Reference | None
) -> Output | None:
    """The run's tokenizer: a model that goes on needs the one it began with."""
    if value not in ("auto", "champion", ""):
        return _named(store, value, "--use-tokenizer", "tokenizer", champion)
    model = start if value != "champion" else _named(store, "champion", "--use-tokenizer", "train", champion)
    cache = model.input("token_cache") if model else None
    return cache.part("tokenizer") if cache else None


def body(reference: Reference | None) -> str:
    """What is passed on as an artifact: the reference as JSON, or the word `none`."""
    return reference.to_json() if reference else NONE + "\n"


def inputs_json(references: dict[str, Reference | None]) -> str:
    """The references in the format that `--inputs FILE` of every stage reads."""
    values = {name: vars(r) if r else NONE for name, r in references.items() if name in POINTED}
    return json.dumps(values, indent=1)
