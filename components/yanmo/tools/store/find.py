"""What the tools find and print alike: the output that a person names, and one JSON document."""

from __future__ import annotations

import json

from yanmo.common.errors import UsageError
from yanmo.store.named import LATEST, Wanted, find_named, none_yet
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output


def find(
    store: ObjectStore, what: str, stage: str = "", *, channel: str = "", where: str = "WHAT", also: str = ""
) -> Output:
    """The output that `what` names.

    Args:
        stage: of which stage it has to be; "" for any.
        channel: the command's own.
        where: the option or word that was given.
        also: what else it takes, for messages.

    Raises:
        UsageError: it can name none, or names several.
        DataError: there is none, for `latest` none yet, it is of another stage, or its manifest is damaged.
    """
    some = (stage,) if stage else ()
    wanted = Wanted(where=where, stages=some, pointers=some, channel=channel, also=also)
    found = find_named(store, what, wanted)
    if found is None and what == LATEST:
        raise none_yet(store, channel, stage, wanted, what)
    if found is None:
        raise UsageError(f"{where} {what[:100]!r}: expected {wanted}")
    return found


def print_json(value: object) -> None:
    """One JSON document on stdout, for scripts."""
    print(json.dumps(value, ensure_ascii=False, indent=1))
