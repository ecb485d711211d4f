"""Options of `yanmo watch`, apart from what does the work: `--help` needs them alone."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import opt, word
from yanmo.options.shared import MODEL, ToolOptions, channel_opt


@dataclass(frozen=True, kw_only=True)
class WatchOptions(ToolOptions, group="watch"):
    """Follow a training in the terminal: progress, curve, speed, where the time goes, what is wrong.

    Reads what the training writes for itself, of one at work on this machine, in a bucket (as of its last
    checkpoint) or finished. Ends when the training does. Where stdout is no terminal, as with --once, it
    prints the state of now. Exit code: 0, 65 where there is no training.
    """

    run: str = word(
        f"which training: its key (train/b41ab0931ad2), also while it is at work, or {MODEL}; default: "
        "the one at work, else the channel's last",
        default="",
    )
    channel: str = channel_opt("whose last training is shown where none is at work")
    once: bool = opt(False, "print the state of now and end", often=True)
    every: float = opt(2.0, "seconds between two looks", least=0.2, most=3600)
