"""`--sinks`: what it takes. Standard library only, as options are."""

from __future__ import annotations

from collections.abc import Iterator

from yanmo.options.nearest import did_you_mean
from yanmo.options.values import brief

SINKS = {"tensorboard": "DIR", "mlflow": "URI", "wandb": "PROJECT"}
"""Name -> what its target is."""


def named(given: str) -> list[tuple[str, str]]:
    """Name and target of each of `NAME=TARGET,...`."""
    parts = (part.strip().partition("=") for part in given.split(",") if part.strip())
    return [(name, target) for name, _, target in parts]


def wrong(given: str) -> Iterator[str]:
    """What cannot be, of the value of --sinks."""
    names = [name for name, _ in named(given)]
    known = ", ".join(f"{name}={target}" for name, target in SINKS.items())
    for name, target in named(given):
        if name not in SINKS or not target:
            yield f"--sinks {brief(f'{name}={target}')}: expected some of {known}{did_you_mean(name, SINKS)}"
        elif names.count(name) > 1:
            yield f"--sinks names {name} {names.count(name)} times: expected each at most once"
