"""Options of `yanmo promote history`, `rollback`, `approve` and `reject`, apart from what does the work."""

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
class RollbackOptions(ToolOptions, group="rollback"):
    """Bring a former champion back."""

    channel: str = channel_opt("channel whose champion is replaced")
    to: int = opt(0, "number in the history; 0 is the one before", least=-MOST)  # the history says which
    why: str = opt(REQUIRED, "the reason, for the history")
    who: str = opt("", "for the history; default: user@host")
    dry_run: bool = opt(False, "show what would happen and move nothing")
    yes: bool = opt(False, "do not ask")

    def contradictions(self) -> list[str]:
        is_said = bool(self.why.strip())
        return [] if is_said else ["--why is empty; say for the history why the champion is taken down"]


_HELD = word(
    "the model: train/KEY, the first 4 digits of the key are enough (or evaluate/KEY, promote/KEY of its "
    "comparison); without it the only one that waits",
    "",
)


@dataclass(frozen=True, kw_only=True)
class DecisionOptions(ToolOptions, group="decision"):
    """Decide about a model that waits."""

    what: str = _HELD
    channel: str = channel_opt("channel that the model waits in")
    why: str = opt(REQUIRED, "the reason, for the history")
    who: str = opt("", "who decides, for the history; default: user@host")
    yes: bool = opt(False, "do not ask")
    executor_input: str = opt("", "KFP's executor input, JSON; the pipeline sets it")

    def contradictions(self) -> list[str]:
        is_said = bool(self.why.strip())
        return [] if is_said else ["--why is empty; say for the history why this is decided"]


@dataclass(frozen=True, kw_only=True)
class ApproveOptions(DecisionOptions, group="approve"):
    """Make a model champion that won and waits for a person (yanmo promote --hold)."""


@dataclass(frozen=True, kw_only=True)
class RejectOptions(DecisionOptions, group="reject"):
    """Let a model that won wait no longer; it is not held again."""


COMMANDS: dict[str, type[ToolOptions]] = {
    "history": HistoryOptions,
    "rollback": RollbackOptions,
    "approve": ApproveOptions,
    "reject": RejectOptions,
}
"""Subcommand of `yanmo promote` -> its options."""
