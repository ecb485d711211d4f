"""The command line of `yanmo promote`: the stage itself, `history` and `rollback`."""

from __future__ import annotations

import getpass
import json
import logging
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from yanmo.common.aligned_table import text_table
from yanmo.common.command_end import ended
from yanmo.common.errors import DataError, ExitCode, UsageError
from yanmo.common.logs import setup
from yanmo.options.command_line import load_command
from yanmo.options.fields import REQUIRED, default_argv, opt
from yanmo.options.nearest import did_you_mean
from yanmo.options.shared import ToolOptions, channel_opt
from yanmo.options.values import MOST, brief
from yanmo.promote.config import STAGE
from yanmo.promote.hand_over import PromoteRun
from yanmo.promote.history.champion import CHAMPION, ChampionChanged, named
from yanmo.promote.history.champion_records import ChampionRecord, all_records
from yanmo.promote.history.rollback import plan_rollback, roll_back
from yanmo.promote.preparing import prepare
from yanmo.promote.work import finish, show_pause, work
from yanmo.stage.run import main as stage_main
from yanmo.stage.stage_run import Finish, Steps
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import store_of
from yanmo.store.output import Output, open_reference, read_json
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
    if words and words[0] in _TOOLS:
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
    hint = did_you_mean(word, _TOOLS) or f"; `yanmo promote` has {' and '.join(_TOOLS)}"
    raise UsageError(f"{brief(word)}: expected --OPTION{hint}; see yanmo promote --help")


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


def _tool(argv: Sequence[str]) -> int:

    def serve() -> int:
        _, options = load_command(_TOOLS, argv, "yanmo promote", "")
        assert isinstance(options, HistoryOptions | RollbackOptions)
        setup(options.log_level, STAGE.name, options.log_format)
        pointer_name(options.channel, CHAMPION)
        store = store_of(options)
        return _history(store, options) if isinstance(options, HistoryOptions) else _rollback(store, options)

    return ended(STAGE.name, serve, "nothing half-written is visible; run the same command again to go on")


def _history(store: ObjectStore, options: HistoryOptions) -> int:
    records, now = all_records(store, options.channel), read_pointer(store, options.channel, CHAMPION)
    if options.json:
        document = {"channel": options.channel, "champion": asdict(now) if now else None}
        print(json.dumps({**document, "records": [asdict(r) for r in records]}, ensure_ascii=False, indent=1))
        return ExitCode.DONE
    if not records:
        print(f"channel {options.channel} of {store.uri} has no champion yet")
        return ExitCode.DONE
    rows = [["number", "since (UTC)", "champion", "bits", "how"]]
    rows += [_row(store, record) for record in records]
    print("\n".join(text_table(rows)))
    print(_current(records, now))
    return ExitCode.DONE


def _row(store: ObjectStore, record: ChampionRecord) -> list[str]:
    how = f"verdict {named(record.verdict)}"
    if record.kind == "rollback":
        how = f"rollback to {record.restores} by {record.who}: {record.why}"
    since = record.since.removesuffix(" UTC")
    return [str(record.number), since, named(record.model), _bits(store, record.evaluation), how]


def _bits(store: ObjectStore, evaluation: Reference) -> str:
    try:
        summary = read_json(open_reference(store, evaluation), "summary.json")
        return f"{summary['mean']['bits_per_character']:.3f}"
    except (DataError, KeyError, TypeError):
        return "lost"


def _current(records: Sequence[ChampionRecord], now: Reference | None) -> str:
    last, names = records[-1], {record.model.content_digest: named(record.model) for record in records}
    lines = [f"\nchampion: {named(now)}"]
    if now is None:
        lines.append(
            "The pointer to the champion is lost; a rollback without --to brings the last one back, and "
            "until then no model is promoted."
        )
    elif now.content_digest != last.model.content_digest:
        lines.append(
            "The last change is not in the history yet; the next promote or the same rollback enters it."
        )
    lines += [f"rolled back: {names.get(one.model, one.model[:12])}, {one}" for one in last.rolled_back]
    return "\n".join(lines)


def _rollback(store: ObjectStore, options: RollbackOptions) -> int:
    plan = plan_rollback(store, options.channel, options.to)
    print(plan)
    if options.dry_run:
        print("dry run, nothing moved")
        return ExitCode.DONE
    if not options.yes and not _agreed():
        print("nothing moved")
        return ExitCode.DONE
    record = roll_back(store, plan, who=options.who or _user(), why=options.why.strip())
    print(f"{named(record.model)} is champion of channel {options.channel!r} (number {record.number})")
    return ExitCode.DONE


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nobody to ask: this is no terminal; give --yes to do it, or --dry-run")
    return input("Go on? [y/N] ").strip().lower() in ("y", "yes")


def _user() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a pod's user id that has no name
        name = "unknown"
    return f"{name}@{socket.gethostname()}"


_TOOLS: dict[str, type[ToolOptions]] = {"history": HistoryOptions, "rollback": RollbackOptions}
