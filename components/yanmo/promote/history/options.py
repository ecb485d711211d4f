"""Options of `yanmo promote history`, `rollback` and `set`, apart from what does the work."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import REQUIRED, opt, word
from yanmo.options.shared import ToolOptions, channel_opt
from yanmo.options.values import MOST


@dataclass(frozen=True, kw_only=True)
class HistoryOptions(ToolOptions, group="history"):
    """Show the champions of a channel."""

    channel: str = channel_opt("channel whose champions are shown")
    json: bool = opt(False, "for scripts: one JSON document")


@dataclass(frozen=True, kw_only=True)
class ByHandOptions(ToolOptions, group="history"):
    """What a person says who moves the champion."""

    channel: str = channel_opt("channel whose champion is replaced")
    why: str = opt(REQUIRED, "the reason, for the history")
    who: str = opt("", "for the history; default: user@host")
    dry_run: bool = opt(False, "show what would happen and move nothing")
    yes: bool = opt(False, "do not ask")

    def contradictions(self) -> list[str]:
        return [] if self.why.strip() else ["--why is empty; say for the history why the champion changes"]


@dataclass(frozen=True, kw_only=True)
class RollbackOptions(ByHandOptions, group="rollback"):
    """Bring a former champion back."""

    to: int = opt(0, "number in the history; 0 is the one before", least=-MOST)  # the history says which


@dataclass(frozen=True, kw_only=True)
class SetOptions(ByHandOptions, group="set"):
    """Make a judged model champion by hand: approve one that --hold kept waiting, or choose another."""

    what: str = word(
        "the model: train/KEY, the first 4 digits of the key are enough; or promote/KEY of its verdict"
    )


COMMANDS: dict[str, type[HistoryOptions | ByHandOptions]] = {
    "history": HistoryOptions,
    "rollback": RollbackOptions,
    "set": SetOptions,
}
"""Subcommand of `yanmo promote` -> its options."""
