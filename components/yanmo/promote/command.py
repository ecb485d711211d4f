"""The command line of `yanmo promote`: the stage itself, `history`, `rollback` and `set`."""

from __future__ import annotations

import functools
import getpass
import socket
import sys
from collections.abc import Sequence

from yanmo.common.command_end import ended
from yanmo.common.errors import ExitCode, UsageError
from yanmo.common.logs import setup
from yanmo.common.words import did_you_mean
from yanmo.nights.observer import NightObserver
from yanmo.options.command_line import load_command
from yanmo.options.fields import default_argv
from yanmo.options.values import brief
from yanmo.promote.config import STAGE
from yanmo.promote.history.options import COMMANDS, ByHandOptions, HistoryOptions, RollbackOptions, SetOptions
from yanmo.promote.history.rollback import plan_rollback, roll_back
from yanmo.promote.history.setting import plan_set, set_champion
from yanmo.promote.history.shown import show_history
from yanmo.promote.preparing import prepare
from yanmo.promote.work import finish, show_pause, work
from yanmo.stage.run import main as stage_main
from yanmo.stage.stage_run import Steps
from yanmo.store.champion_records import CHAMPION, named
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import default_store, store_of
from yanmo.store.pointers import pointer_name


def main(argv: Sequence[str] | None = None, *, started: float | None = None) -> int:
    """Run the command that `argv` names; returns the exit code.

    Args:
        started: as for `yanmo.stage.run.main`.
    """
    words = list(default_argv(argv))
    if words and words[0] in COMMANDS:
        return _tool(words)
    if words and not words[0].startswith("-"):
        return ended(STAGE.name, lambda: _refuse(words[0]))
    return judge_and_promote(words, started=started)


def judge_and_promote(argv: Sequence[str], *, started: float | None = None) -> int:
    """Run the stage; where another run promoted its model meanwhile, it ends with 75, and the same again
    compares with that model."""
    steps = Steps(work, prepare=prepare, finish=finish, show_pause=show_pause, observer=NightObserver)
    return stage_main(STAGE, steps, argv, started=started)


def _refuse(word: str) -> int:
    hint = did_you_mean(word, COMMANDS) or f"; `yanmo promote` has {' and '.join(COMMANDS)}"
    raise UsageError(f"{brief(word)}: expected --OPTION{hint}; see yanmo promote --help")


def _tool(argv: Sequence[str]) -> int:

    def serve() -> int:
        _, options = load_command(COMMANDS, argv, "yanmo promote", "")
        setup(options.log_level, STAGE.name, options.log_format)
        store = store_of(options, options.store or default_store())
        pointer_name(options.channel, CHAMPION)
        if isinstance(options, HistoryOptions):
            return show_history(store, options.channel, as_json=options.json)
        return _by_hand(store, options)

    return ended(STAGE.name, serve, "nothing half-written is visible; run the same command again to go on")


def _by_hand(store: ObjectStore, options: ByHandOptions) -> int:
    """Show what would move, ask, and move it."""
    who, why = options.who.strip() or _user(), options.why.strip()
    if isinstance(options, RollbackOptions):
        back = plan_rollback(store, options.channel, options.to)
        shown, done, move = (
            str(back),
            "Rolled back",
            functools.partial(roll_back, store, back, who=who, why=why),
        )
    else:
        assert isinstance(options, SetOptions)
        plan = plan_set(store, options.channel, options.what)
        shown, done, move = (
            str(plan),
            "Promoted",
            functools.partial(set_champion, store, plan, who=who, why=why),
        )
    print(shown)
    if options.dry_run:
        print("dry run, nothing moved")
    elif not options.yes and not _agreed():
        print("nothing moved")
    else:
        record = move()
        champion = f"{named(record.model)} is champion of channel {options.channel!r}"
        print(f"{done}: {champion} (number {record.number})")
    return ExitCode.DONE


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nobody to ask: this is no terminal; give --yes to do it, or --dry-run")
    return input("Go on? [y/N] ").strip().lower() in ("y", "yes")


def _user() -> str:
    """Return who runs this process, and where: `name@machine`."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a pod's user id that has no name
        name = "unknown"
    return f"{name}@{socket.gethostname()}"
