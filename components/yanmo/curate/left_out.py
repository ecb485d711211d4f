"""What a run leaves out as somebody forbids it: texts that were taken down, licences that are not allowed.

The channel keeps both lists (store/channel), so that a later run leaves out the same without being told.
"""

from __future__ import annotations

from typing import Any

from yanmo.common.errors import UsageError
from yanmo.curate.config import CurateOptions
from yanmo.options.fields import NONE
from yanmo.store.channel.document import document_name
from yanmo.store.channel.licenses import (
    Allowed,
    folded,
    names_in,
    read_allowed,
    read_states,
    same_names,
    set_allowed,
)
from yanmo.store.channel.takedown import TAKEDOWN
from yanmo.store.manifest import digest
from yanmo.store.objects import ObjectStore


def allowed_licenses(store: ObjectStore, options: CurateOptions) -> Allowed | None:
    """The licences that the channel allows, or those that its first run with some names.

    Raises:
        UsageError: --allow-licenses is another list than the channel's.
    """
    channel, of_channel = options.channel, read_allowed(store, options.channel)
    if not options.allow_licenses.strip():
        return of_channel
    names = names_in(options.allow_licenses)
    if of_channel is None and (options.pointer == NONE or not read_states(store, channel)):
        return Allowed(names=names, who="", why="", when="")
    if of_channel is None or not same_names(of_channel.names, names):
        raise UsageError(
            f"--allow-licenses {', '.join(names)}: channel {channel!r} allows "
            f"{of_channel.shown if of_channel else 'every licence'}; leave the option out, or change the "
            f"list: yanmo channel licenses --set {','.join(names)} --why ... --channel {channel}"
        )
    return of_channel


def keep_allowed(store: ObjectStore, options: CurateOptions) -> None:
    """Set the list of the channel's first run with one for all later ones.

    Called once there is an output: a run that failed, perhaps for a wrong list, sets none.
    """
    if options.allow_licenses.strip() and options.pointer != NONE:
        why = "the first run with --allow-licenses"
        names = names_in(options.allow_licenses)
        set_allowed(store, options.channel, names, who=options.run_id, why=why, only_first=True)
        allowed_licenses(store, options)  # of two first runs one was faster


def left_out_inputs(options: CurateOptions, ids: frozenset[str], allowed: Allowed | None) -> dict[str, Any]:
    """What the key depends on of these; nothing where nothing is forbidden, as in a channel without lists."""
    inputs: dict[str, Any] = {}
    if ids:
        uri = options.exclude or document_name(options.channel, TAKEDOWN)
        inputs["exclude"] = {"content_digest": digest(sorted(ids)), "uri": uri}
    if allowed is not None:
        inputs["licenses"] = {"content_digest": digest(names_of(allowed)), "uri": allowed.shown}
    return inputs


def names_of(allowed: Allowed) -> list[str]:
    """The names as they are compared, so that two spellings of one list make one key."""
    return sorted({folded(name) for name in allowed.names})
