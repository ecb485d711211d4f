"""The command line of `yanmo promote`: the stage itself, `history`, `rollback` and `set`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from yanmo.common.command_end import ended
from yanmo.common.errors import ExitCode, UsageError
from yanmo.common.logs import setup
from yanmo.common.user import user
from yanmo.nights.observer import NightObserver
from yanmo.options.command_line import load_command
from yanmo.options.fields import default_argv
from yanmo.options.nearest import did_you_mean
from yanmo.options.values import brief
from yanmo.promote.config import STAGE
from yanmo.promote.hand_over import PromoteRun
from yanmo.promote.history.champion import CHAMPION, ChampionChanged, named
from yanmo.promote.history.champion_records import ChampionRecord
from yanmo.promote.history.options import COMMANDS, HistoryOptions, RollbackOptions, SetOptions
from yanmo.promote.history.rollback import plan_rollback, roll_back
from yanmo.promote.history.setting import plan_set, set_champion
from yanmo.promote.history.shown import show_history
from yanmo.promote.preparing import prepare
from yanmo.promote.work import finish, show_pause, work
from yanmo.stage.run import main as stage_main
from yanmo.stage.stage_run import Finish, Steps
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import default_store, store_of
from yanmo.store.output import Output
from yanmo.store.pointers import pointer_name

log = logging.getLogger(__name__)
_RACES = 5
"""How often one run compares, each time with another new champion, before it gives up."""


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
    """The stage. Where another run promoted its model meanwhile, this one compares again, with that model."""
    for _ in range(_RACES):
        races: list[ChampionChanged] = []

        def finish_or_note(run: PromoteRun, output: Output, races: list[ChampionChanged] = races) -> Finish:
            try:
                return finish(run, output)
            except ChampionChanged as error:
                races.append(error)
                raise

        steps = Steps(
            work, prepare=prepare, finish=finish_or_note, show_pause=show_pause, observer=NightObserver
        )
        code = stage_main(STAGE, steps, argv, started=started)
        if not races:
            return code
        log.warning("comparing again, with the new champion")
    return code


def _refuse(word: str) -> int:
    hint = did_you_mean(word, COMMANDS) or f"; `yanmo promote` has {' and '.join(COMMANDS)}"
    raise UsageError(f"{brief(word)}: expected --OPTION{hint}; see yanmo promote --help")


def _tool(argv: Sequence[str]) -> int:

    def serve() -> int:
        _, options = load_command(COMMANDS, argv, "yanmo promote", "")
        setup(options.log_level, STAGE.name, options.log_format)
        store = store_of(options, options.store or default_store())
        match options:
            case HistoryOptions():
                pointer_name(options.channel, CHAMPION)
                return show_history(store, options.channel, as_json=options.json)
            case RollbackOptions():
                pointer_name(options.channel, CHAMPION)
                return _rollback(store, options)
            case SetOptions():
                pointer_name(options.channel, CHAMPION)
                return _set(store, options)
        raise AssertionError(options)

    return ended(STAGE.name, serve, "nothing half-written is visible; run the same command again to go on")


def _rollback(store: ObjectStore, options: RollbackOptions) -> int:
    plan = plan_rollback(store, options.channel, options.to)
    if _is_asked(plan, options):
        record = roll_back(store, plan, who=options.who or user(), why=options.why.strip())
        _say_champion(options.channel, record)
    return ExitCode.DONE


def _set(store: ObjectStore, options: SetOptions) -> int:
    plan = plan_set(store, options.channel, options.what)
    if _is_asked(plan, options):
        record = set_champion(store, plan, who=options.who.strip() or user(), why=options.why.strip())
        _say_champion(options.channel, record)
    return ExitCode.DONE


def _is_asked(plan: object, options: RollbackOptions | SetOptions) -> bool:
    """Whether it shall be done, once it was shown."""
    print(plan)
    if options.dry_run:
        print("dry run, nothing moved")
        return False
    if not options.yes and not _agreed():
        print("nothing moved")
        return False
    return True


def _say_champion(channel: str, record: ChampionRecord) -> None:
    print(f"{named(record.model)} is champion of channel {channel!r} (number {record.number})")


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nobody to ask: this is no terminal; give --yes to do it, or --dry-run")
    return input("Go on? [y/N] ").strip().lower() in ("y", "yes")
