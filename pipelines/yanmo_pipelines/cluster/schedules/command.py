"""`yanmo schedule apply | diff | delete`: when which pipeline runs, from a file."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from yanmo.common.answers import answer
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import ExitCode, UsageError
from yanmo.common.logs import setup
from yanmo.common.words import did_you_mean, plural
from yanmo.options.command_line import load_command
from yanmo.options.fields import default_argv, opt, word
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import KFP_NAMESPACE, PlaceOptions
from yanmo_pipelines.cluster.plan import Plan, planned
from yanmo_pipelines.cluster.refusals import Forbidden, NoAnswer, NotFound
from yanmo_pipelines.cluster.schedules.file import Schedule, read_schedules, shown_time
from yanmo_pipelines.cluster.schedules.recurring import RecurringRuns
from yanmo_pipelines.cluster.submit import cluster_if_any

log = logging.getLogger(__name__)
DIFFERS = 1
"""Exit code of `diff` where an apply would change something, as kubectl's."""
_ABOUT = "Schedules from a file: recurring runs of KFP."
_FIELDS = ("second", "minute", "hour", "day", "month", "weekday")
_SETTINGS, _ZONE = "pipeline-install-config", "cronScheduleTimezone"


@dataclass(frozen=True, kw_only=True)
class FileOptions(PlaceOptions, group="schedule"):
    """What apply, diff and delete share."""

    file: str = word("the file of schedules (docs/tutorials/every-night.md)")
    only: tuple[str, ...] = opt(
        (), "only the schedule of this name; may be given many times", metavar="NAME", often=True
    )
    kfp_timezone: str = opt(
        "",
        "time zone of KFP's clock (cronScheduleTimezone), where its ConfigMap pipeline-install-config cannot "
        "be read; default: UTC",
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


COMMANDS: dict[str, type[FileOptions]] = {
    "apply": ApplyOptions,
    "diff": DiffOptions,
    "delete": DeleteOptions,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""

    def serve() -> int:
        name, options = load_command(COMMANDS, default_argv(argv), "yanmo schedule", _ABOUT)
        setup(options.log_level, "schedule", options.log_format)
        schedules = read_schedules(options.file)
        runs, zone = _recurring(options)
        if name == "delete":
            return _delete(runs, options.only or tuple(schedules))
        chosen = _chosen(options, schedules)
        plans = {each: plan_of(schedule) for each, schedule in chosen.items()}  # before one changes
        return _diff(runs, chosen, plans) if name == "diff" else _apply(runs, chosen, plans, zone)

    return ended("schedule", serve, "the same command goes on")


def _recurring(options: FileOptions) -> tuple[RecurringRuns, str]:
    """Return the recurring runs of KFP, and its time zone with how that is known."""
    kubernetes = cluster_if_any(options)
    if zone := _installed_zone(kubernetes) if kubernetes else "":
        known_by = f"ConfigMap {_SETTINGS}"
        if options.kfp_timezone not in ("", zone):
            log.warning(
                "--kfp-timezone %s: ConfigMap %s says %s, which is taken; leave the flag out, or change that",
                options.kfp_timezone,
                _SETTINGS,
                zone,
            )
    else:
        zone, known_by = options.kfp_timezone or "UTC", "--kfp-timezone"
        known_by = known_by if options.kfp_timezone else f"KFP's default; {known_by} says another"
    return RecurringRuns(KfpApi(options, kubernetes), zone), f"{zone}, KFP's zone by {known_by}"


def _installed_zone(kubernetes: KubernetesApi) -> str:
    path = f"/api/v1/namespaces/{KFP_NAMESPACE}/configmaps/{_SETTINGS}"
    try:
        found = kubernetes.get(path, f"read ConfigMap {_SETTINGS}")
    except (NotFound, Forbidden, NoAnswer):
        return ""
    return str((found.get("data") or {}).get(_ZONE, ""))


def plan_of(schedule: Schedule) -> Plan:
    """Return what the schedule's runs are; the same check as that of `yanmo submit`.

    Raises:
        UsageError: what is wrong with the form's values; names the schedule.
    """
    options = schedule.options
    own = {"store": options.store, "channel": options.channel}
    settings = [f"{name}={value}" for name, value in schedule.settings.items()]
    settings.append(f"resolve.schedule={schedule.name}")
    try:
        return planned(options.pipeline, settings, own, options)
    except UsageError as error:
        raise UsageError(f"schedule {schedule.name}: {error}") from error


def _chosen(options: FileOptions, schedules: dict[str, Schedule]) -> dict[str, Schedule]:
    for name in options.only:
        if name not in schedules:
            raise UsageError(
                f"--only {name}: {options.file} has no such schedule{did_you_mean(name, schedules)}; "
                f"expected one of {', '.join(schedules)}"
            )
    return {name: each for name, each in schedules.items() if not options.only or name in options.only}


def _apply(runs: RecurringRuns, chosen: Mapping[str, Schedule], plans: Mapping[str, Plan], zone: str) -> int:
    for name, schedule in chosen.items():
        runs.difference(schedule, plans[name])  # whatever refuses one of them does so before one is made
    for name, schedule in chosen.items():
        answer(f"{name}: {runs.apply(schedule, plans[name])}")
        line = runs.line(schedule)
        parts = ", ".join(f"{n} {f}" for n, f in zip(_FIELDS, line.split(), strict=True))
        times = [shown_time(at, schedule.zone) for at in schedule.next_times(time.time())]
        fires = "suspended: does not fire" if schedule.options.suspend else ", ".join(times)
        answer(f"  cron  {line}  ({parts}; {zone})")
        answer(f"  next  {fires} ({schedule.options.timezone})")
    return ExitCode.DONE


def _diff(runs: RecurringRuns, chosen: Mapping[str, Schedule], plans: Mapping[str, Plan]) -> int:
    found = {name: runs.difference(schedule, plans[name]) for name, schedule in chosen.items()}
    for name, lines in found.items():
        if lines:
            answer("\n".join((f"{name}: recurring run of KFP", *(f"  {line}" for line in lines))))
    for name in sorted(runs.names() - set(chosen)):
        log.info(
            "%s: made by another file, or no longer in this one; `delete --only %s` removes it", name, name
        )
    return DIFFERS if any(found.values()) else ExitCode.DONE


def _delete(runs: RecurringRuns, names: Sequence[str]) -> int:
    for name in names:
        count = runs.delete(name)
        what = f"deleted: {plural(count, 'recurring run')} of KFP" if count else "nothing to delete"
        answer(f"{name}: {what}")
    return ExitCode.DONE


if __name__ == "__main__":
    as_process(main)
