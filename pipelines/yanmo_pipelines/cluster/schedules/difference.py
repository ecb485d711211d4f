"""What differs between what a file says and what the cluster has, line by line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """What an apply would change of one schedule; no lines for nothing."""

    what: str
    """Such as `recurring run of KFP`."""
    lines: tuple[str, ...]
    """`- cron: ...` as it is, `+ cron: ...` as it would be."""

    def __bool__(self) -> bool:
        return bool(self.lines)


def lines_of(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """The values that differ, by name."""
    found = []
    for name in sorted({*now, *wanted}):
        if now.get(name) != wanted.get(name):
            found += [f"- {name}: {_shown(now[name])}"] if name in now else []
            found += [f"+ {name}: {_shown(wanted[name])}"] if name in wanted else []
    return tuple(found)


def flattened(tree: Any, prefix: str = "") -> dict[str, Any]:
    """A tree's leaves by their path: `spec.jobTemplate.spec.backoffLimit`."""
    if isinstance(tree, dict) and tree:
        items = [(f"{prefix}.{key}" if prefix else str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list) and tree:
        items = [(f"{prefix}[{at}]", value) for at, value in enumerate(tree)]
    else:
        return {prefix: tree}
    return {name: leaf for path, value in items for name, leaf in flattened(value, path).items()}


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 300 else f"{text[:297]}..."
