"""The command line of `yanmo watch`."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Sequence

from yanmo.common.command_end import ended
from yanmo.common.errors import DataError, ExitCode
from yanmo.common.logs import setup
from yanmo.options.command_line import load_given
from yanmo.options.fields import default_argv
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import store_of
from yanmo.tools.watch.options import WatchOptions
from yanmo.tools.watch.training import Training, Watcher, channels_with_one, others_at_work

log = logging.getLogger(__name__)
_SHOWN = 10
"""Channels that a message names."""


def main(argv: Sequence[str] | None = None) -> int:
    """Show a training until it ends; returns the exit code."""

    def serve() -> int:
        options, given = load_given(WatchOptions, default_argv(argv), "yanmo watch")
        setup(options.log_level, "watch", options.log_format)
        store = store_of(options)
        watcher = Watcher(store, options.channel, options.run, is_named="channel" in given)
        if options.once or not sys.stdout.isatty():
            _print(_found(watcher, store, options.channel))
        else:
            _follow(watcher, store, options.every)
        return ExitCode.DONE

    return ended("watch", serve, "the training goes on")


def _found(watcher: Watcher, store: ObjectStore, channel: str) -> Training:
    """The training.

    Raises:
        DataError: there is none.
    """
    found = watcher.look()
    if found is None:
        others = ", ".join(others_at_work(store)) or "nothing"
        known = ", ".join(channels_with_one(store)[:_SHOWN]) or "none"
        raise DataError(
            f"{store.uri}: no training is at work and channel {channel!r} has none yet; at work now: "
            f"{others}; channels that have one: {known}. Start one (`yanmo run`), or name its store and "
            "channel: --store, --channel"
        )
    return found


def _print(training: Training) -> None:
    from rich.console import Console

    from yanmo.tools.watch.shown import shown

    width = shutil.get_terminal_size((100, 24)).columns
    console = Console(file=sys.stdout, width=width, highlight=False, soft_wrap=False)
    console.print(shown(training, width))


def _follow(watcher: Watcher, store: ObjectStore, every: float) -> None:
    """Paint it again and again, until it is done or nobody works on it."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from yanmo.tools.watch.shown import shown

    console = Console(file=sys.stdout, highlight=False)
    with Live(Text("looking ..."), console=console, auto_refresh=False) as live:
        while True:
            training = watcher.look()
            if training is None:
                others = ", ".join(others_at_work(store)) or "nothing"
                live.update(Text(f"no training yet; at work: {others}"), refresh=True)
            else:
                live.update(shown(training, console.width), refresh=True)
                if training.state != "at work":
                    return
            time.sleep(every)
