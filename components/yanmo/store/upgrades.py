"""Older schemas of stored documents, and how a document of one is brought to the next.

A rename or a new field adds a function and a line to `UPGRADES`. Then readers take the older documents as
they are, and `yanmo store migrate` rewrites them. A content digest may not change on the way: references pin
it. References also lie inside manifests and records, where only the upgrade of the whole document reaches
them: a new schema of references needs new schemas of those, whose upgrades bring the references along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Document = dict[str, Any]


def _champion_record(values: Document) -> Document:
    names = {"crowned_at": "champion_since", "barred": "rolled_back"}
    return {names.get(name, name): value for name, value in values.items()} | {"schema": "yanmo.promotion/1"}


def _takedown(values: Document) -> Document:
    return {**values, "lifted": [], "schema": "yanmo.takedown/2"}


UPGRADES: dict[str, Callable[[Document], Document]] = {
    "yanmo.coronation/1": _champion_record,
    "yanmo.takedown/1": _takedown,
}
"""Older schema -> the same document in the next one."""
