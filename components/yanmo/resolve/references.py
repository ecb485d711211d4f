"""What a channel's pointers name at the start of a run.

A pipeline follows pointers once, here; every later task is given references. Otherwise a task's key
would depend on when it started, and a promotion in another run could change a run under way.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from yanmo.options.fields import NONE, flag
from yanmo.options.shared import StageOptions
from yanmo.resolve.begun_training import Finishing
from yanmo.resolve.channel_tokenizer import channels_tokenizer, tokenizer_of
from yanmo.resolve.config import ResolveOptions
from yanmo.store.champion_records import follow
from yanmo.store.manifest import Reference
from yanmo.store.named import Wanted, find_named
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.store.pointers import open_named, pointer_name, read_pointer

log = logging.getLogger(__name__)


NEW = "new"
POINTED = ("champion", "evaluation_set")
"""Pointers that a run follows here; an output of this task has the name of each."""
Opened = Mapping[str, Output | None]
"""What they name."""


def resolve(
    store: ObjectStore,
    options: ResolveOptions,
    vocabulary: StageOptions | None = None,
    finishing: Finishing | None = None,
) -> dict[str, Reference | None]:
    """Return each output of this task -> what it refers to; None for nothing.

    Args:
        vocabulary: the options of `tokenize`; None where the run's are not known.
        finishing: the training that this run finishes, and what it began with.

    Raises:
        DataError: a pointer or an option names an output that is not in the store.
    """
    follow(store, options.channel)
    opened = {name: _pointed(store, options.channel, name) for name in POINTED}
    for name, output in opened.items():
        log.info("%s of channel %s: %s", name, options.channel, output or NONE)
    start: Output | None
    tokenizer: Output | None
    if finishing:
        start, tokenizer = finishing.model, finishing.cache.part("tokenizer")
    else:
        start = _named(store, options, "start_from", "train", opened)
        tokenizer = _tokenizer(store, options, start, opened, vocabulary)
    found = {**opened, "start_model": start, "tokenizer": tokenizer}
    return {name: output.reference if output else None for name, output in found.items()}


def _pointed(store: ObjectStore, channel: str, name: str) -> Output | None:
    """Return what a pointer of the channel names, opened; None where there is none."""
    reference = read_pointer(store, channel, name)
    return open_named(store, reference, pointer_name(channel, name)) if reference else None


def _named(
    store: ObjectStore, options: ResolveOptions, field: str, stage: str, opened: Opened
) -> Output | None:
    """Return the output of `stage` that a field of the form names.

    None for none, and for the channel's champion or latest before a run has made one.
    """
    value, where = getattr(options, field), flag(field)
    if value in (NEW, NONE, ""):
        return None
    if value in ("champion", "latest"):
        output = opened["champion"] if value == "champion" else _pointed(store, options.channel, stage)
        missing = f"channel {options.channel} has none yet, so a new one is made"
        log.info("%s %s: %s", where, value, output or missing)
    else:
        # the form's name: whoever started the run typed that; the flag is what the pipeline makes of it
        name = ResolveOptions.__dataclass_fields__[field].metadata["form"]
        wanted = Wanted(where=name, stages=(stage,), pointers=(stage,), channel=options.channel)
        output = find_named(store, value, wanted)
        log.info("%s: %s", where, output or NONE)
    return output


def _tokenizer(
    store: ObjectStore,
    options: ResolveOptions,
    start: Output | None,
    opened: Opened,
    vocabulary: StageOptions | None,
) -> Output | None:
    """Return the run's tokenizer; None for a new one.

    A model that goes on needs the one it began with. Without one the channel's is kept, so that a run on more
    text can be compared, continued and cached like those before it.
    """
    value = options.use_tokenizer
    if value == NEW:
        return None
    if value not in ("auto", "champion", ""):
        return _named(store, options, "use_tokenizer", "tokenizer", opened)
    if value == "champion":
        return tokenizer_of(_named(store, options, "use_tokenizer", "train", opened))
    return (
        tokenizer_of(start) if start else channels_tokenizer(store, options, opened["champion"], vocabulary)
    )


def inputs_json(references: dict[str, Reference | None]) -> str:
    """Return the references as JSON, for who asks by hand: each may be given to the stage's own flag."""
    values = {name: vars(r) if r else NONE for name, r in references.items() if name in POINTED}
    return json.dumps(values, indent=1)
