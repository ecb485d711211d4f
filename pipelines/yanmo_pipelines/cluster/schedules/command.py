"""`yanmo schedule apply | diff | delete | hold | release`: when which pipeline runs, from a file."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from yanmo.common.answers import answer
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import ExitCode, UsageError
from yanmo.common.logs import setup
from yanmo.options.command_line import load_command
from yanmo.options.fields import default_argv, opt, word
from yanmo.options.nearest import did_you_mean
from yanmo_pipelines.cluster.place import PlaceOptions
from yanmo_pipelines.cluster.schedules.apply import Ways
from yanmo_pipelines.cluster.schedules.file import Schedule, read_schedules, shown_time
from yanmo_pipelines.cluster.schedules.queue import hold

log = logging.getLogger(__name__)
DIFFERS = 1
"""Exit code of `diff` where an apply would change something, as kubectl's."""
_ABOUT = "Schedules from a file: recurring runs of KFP, or CronJobs that submit."


@dataclass(frozen=True, kw_only=True)
class FileOptions(PlaceOptions, group="schedule"):
    """What apply, diff and delete share."""

    file: str = word("the file of schedules (docs/schedules.md)")
    only: tuple[str, ...] = opt(
        (), "only the schedule of this name; may be given many times", metavar="NAME", often=True
    )
    kfp_timezone: str = opt(
        "",
        "time zone of KFP's clock (cronScheduleTimezone); default: what ConfigMap pipeline-install-config "
        "says, else UTC",
        variable="KFP_TIMEZONE",
        metavar="ZONE",
    )


@dataclass(frozen=True, kw_only=True)
class ApplyOptions(FileOptions, group="schedule"):
    """Make what runs by the clock as the file says, and show when each fires next.

    It changes nothing where nothing differs, and leaves alone what other files made. Exit code: 0; 64 where
    the file is wrong (then nothing was changed); 75 where a server does not answer: the same command goes on.
    """


@dataclass(frozen=True, kw_only=True)
class DiffOptions(FileOptions, group="schedule"):
    """Show what an apply would change, and change nothing.

    Exit code, as of kubectl diff: 0 where nothing differs, 1 where something does, above 1 where that cannot
    be said.
    """


@dataclass(frozen=True, kw_only=True)
class DeleteOptions(FileOptions, group="schedule"):
    """Delete what an apply of the file made, and nothing else; runs that go on go on.

    With --only also a schedule that the file no longer names.
    """


@dataclass(frozen=True, kw_only=True)
class QueueOptions(PlaceOptions, group="schedule"):
    """A queue of Kueue's."""

    queue: str = opt("yanmo-night", "name of the LocalQueue in the namespace", often=True)


@dataclass(frozen=True, kw_only=True)
class HoldOptions(QueueOptions, group="schedule"):
    """Stop what runs from a queue of Kueue's, each with the time to save, and let nothing begin."""


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions(QueueOptions, group="schedule"):
    """Let a queue of Kueue's go on: what was stopped comes back."""


COMMANDS: dict[str, type[PlaceOptions]] = {
    "apply": ApplyOptions,
    "diff": DiffOptions,
    "delete": DeleteOptions,
    "hold": HoldOptions,
    "release": ReleaseOptions,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""

    def serve() -> int:
        name, options = load_command(COMMANDS, default_argv(argv), "yanmo schedule", _ABOUT)
        setup(options.log_level, "schedule", options.log_format)
        if isinstance(options, QueueOptions):
            answer(hold(options, options.queue, held=name == "hold"))
            return ExitCode.DONE
        assert isinstance(options, FileOptions)
        schedules = read_schedules(options.file)
        if name == "delete":
            return _delete(options, schedules)
        chosen = _chosen(options, schedules)
        ways = Ways(options, options.kfp_timezone, chosen.values())
        return _diff(ways, chosen) if name == "diff" else _apply(ways, chosen)

    return ended("schedule", serve, "the same command goes on")


def _chosen(options: FileOptions, schedules: dict[str, Schedule]) -> dict[str, Schedule]:
    for name in options.only:
        if name not in schedules:
            raise UsageError(
                f"--only {name}: {options.file} has no such schedule{did_you_mean(name, schedules)}; "
                f"expected one of {', '.join(schedules)}"
            )
    return {name: each for name, each in schedules.items() if not options.only or name in options.only}


def _apply(ways: Ways, chosen: dict[str, Schedule]) -> int:
    plans = {
        name: ways.planned(each) for name, each in chosen.items()
    }  # all are looked at before one changes
    for name, schedule in chosen.items():
        answer(f"{name}: {ways.apply(schedule, plans[name])}")
        answer(_when(ways, schedule))
    return ExitCode.DONE


def _when(ways: Ways, schedule: Schedule) -> str:
    """When it fires next, and how the server reads its line."""
    times = [shown_time(at, schedule.zone) for at in schedule.next_times(time.time())]
    fires = "suspended: does not fire" if schedule.options.suspend else ", ".join(times)
    return f"  cron  {ways.explained(schedule)}\n  next  {fires} ({schedule.options.timezone})"


def _diff(ways: Ways, chosen: dict[str, Schedule]) -> int:
    differs = False
    for name, schedule in chosen.items():
        for difference in ways.differences(schedule):
            if difference:
                differs = True
                answer("\n".join((f"{name}: {difference.what}", *(f"  {line}" for line in difference.lines))))
    for name in sorted(ways.others(chosen)):
        log.info(
            "%s: made by another file, or no longer in this one; `delete --only %s` removes it", name, name
        )
    return DIFFERS if differs else ExitCode.DONE


def _delete(options: FileOptions, schedules: dict[str, Schedule]) -> int:
    names = options.only or tuple(schedules)
    ways = Ways(options, options.kfp_timezone, [schedules[name] for name in names if name in schedules])
    for name in names:
        answer(f"{name}: {ways.delete(name)}")
    return ExitCode.DONE


if __name__ == "__main__":
    as_process(main)
