"""The command line of `yanmo promote`: the stage itself, `history`, `rollback`, `approve` and `reject`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from yanmo.common.command_end import ended
from yanmo.common.errors import DataError, ExitCode, UsageError
from yanmo.common.logs import setup
from yanmo.common.user import user
from yanmo.options.command_line import load_command
from yanmo.options.fields import default_argv
from yanmo.options.nearest import did_you_mean
from yanmo.options.values import brief
from yanmo.promote.config import STAGE
from yanmo.promote.hand_over import PromoteRun
from yanmo.promote.history.approval import Signature, approve, choose, reject
from yanmo.promote.history.champion import CHAMPION, ChampionChanged, named
from yanmo.promote.history.options import (
    COMMANDS,
    ApproveOptions,
    HistoryOptions,
    RejectOptions,
    RollbackOptions,
)
from yanmo.promote.history.rollback import plan_rollback, roll_back
from yanmo.promote.history.shown import show_history, shown_entry
from yanmo.promote.preparing import prepare
from yanmo.promote.work import finish, show_pause, work
from yanmo.stage.kfp_outputs import ExecutorOutputs
from yanmo.stage.run import main as stage_main
from yanmo.stage.stage_run import Finish, Steps
from yanmo.store.channel.held import Entry
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import default_store, store_of
from yanmo.store.output import Output
from yanmo.store.pointers import pointer_name, read_pointer

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

        steps = Steps(work, prepare=prepare, finish=finish_or_note, show_pause=show_pause)
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
        outputs = ExecutorOutputs.parse(getattr(options, "executor_input", ""))
        store = store_of(options, options.store or default_store(outputs.bucket if outputs else ""))
        match options:
            case HistoryOptions():
                pointer_name(options.channel, CHAMPION)
                return show_history(store, options.channel, as_json=options.json)
            case RollbackOptions():
                pointer_name(options.channel, CHAMPION)
                return _rollback(store, options)
            case ApproveOptions() | RejectOptions():
                pointer_name(options.channel, CHAMPION)
                return _decide(store, options, outputs)
        raise AssertionError(options)

    return ended(STAGE.name, serve, "nothing half-written is visible; run the same command again to go on")


def _rollback(store: ObjectStore, options: RollbackOptions) -> int:
    from yanmo.promote.history.decision_pages import tell_waiting

    plan = plan_rollback(store, options.channel, options.to)
    print(plan)
    if options.dry_run:
        print("dry run, nothing moved")
        return ExitCode.DONE
    if not options.yes and not _agreed():
        print("nothing moved")
        return ExitCode.DONE
    record = roll_back(store, plan, who=options.who or user(), why=options.why.strip())
    print(f"{named(record.model)} is champion of channel {options.channel!r} (number {record.number})")
    tell_waiting(store, options.channel)
    return ExitCode.DONE


def _decide(
    store: ObjectStore, options: ApproveOptions | RejectOptions, outputs: ExecutorOutputs | None
) -> int:
    from yanmo.promote.history.decision_pages import tell_decision, tell_waiting

    if options.yes and not options.who.strip() and not sys.stdin.isatty():
        raise UsageError("--who is empty, and nobody is at a terminal; say for the history who decides this")
    channel, signature = options.channel, Signature(options.who.strip() or user(), options.why.strip())
    entry = choose(store, channel, options.what)
    print(shown_entry(entry, read_pointer(store, channel, CHAMPION)))
    if not options.yes and not _agreed():
        print("nothing moved")
        return ExitCode.DONE
    if isinstance(options, RejectOptions):
        entry = reject(store, channel, entry, signature)
        said = f"{named(entry.model)} is rejected by {entry.who}: {entry.why}"
        return _decided(store, channel, entry, said, outputs)
    try:
        record = approve(store, channel, entry, signature)
    except DataError:
        tell_decision(store, channel, entry.model)  # whoever opens its page reads the same
        raise
    by = f", approved by {record.who}: {record.why}" if record.who else ""
    said = f"{named(record.model)} is champion of channel {channel!r} (number {record.number}){by}"
    code = _decided(store, channel, entry, said, outputs)
    tell_waiting(store, channel, but=entry.model)
    return code


def _decided(
    store: ObjectStore, channel: str, entry: Entry, said: str, outputs: ExecutorOutputs | None
) -> int:
    """Say what was decided: here, on the pages of the model, and in KFP."""
    from yanmo.promote.history.decision_pages import tell_decision

    print(said)
    page = tell_decision(store, channel, entry.model)
    if outputs:
        outputs.write({"page": page or f"{said}\n"}, {}, {"result": said})
    return ExitCode.DONE


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nobody to ask: this is no terminal; give --yes to do it, or --dry-run")
    return input("Go on? [y/N] ").strip().lower() in ("y", "yes")
