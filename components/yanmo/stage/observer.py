"""What a stage announces: its life knows nothing of nights, pages and indexes.

A stage's `Steps` say who observes it (yanmo.nights.observer). An observer never ends a stage, nor holds one
up.
"""

from __future__ import annotations

from typing import Any, Protocol

from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.store.pause import PausedOutput


class Observer(Protocol):
    """Of one process of one stage."""

    def begins(self, store: ObjectStore, key: str) -> None:
        """The work begins: the key is not committed."""

    def done(self, store: ObjectStore, output: Output, found: Any) -> None:
        """The output is there and handed over; `found` is what a verdict says of the run."""

    def paused(self, store: ObjectStore, paused: PausedOutput) -> None:
        """The work is saved, and goes on in another run."""

    def failed(self, error: BaseException, again: str) -> None:
        """The stage failed; `again` is the command that runs it again."""

    def stopped(self) -> None:
        """A signal ended the process."""
