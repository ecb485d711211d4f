"""The channel that a subcommand is given."""

from __future__ import annotations

from yanmo.common.errors import UsageError
from yanmo.common.names import name_problems
from yanmo.nights.changing import Values
from yanmo.nights.lists import read_index
from yanmo.store.objects import ObjectStore


def index_of(store: ObjectStore, channel: str) -> Values | None:
    """The index of a channel's nights; None where it has none.

    Raises:
        UsageError: a name that no channel can have.
        DataError: the index is damaged.
    """
    for problem in name_problems("--channel", channel):
        raise UsageError(problem)
    return read_index(store, channel)
