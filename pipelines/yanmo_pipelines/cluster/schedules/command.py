"""`yanmo schedule apply | diff | delete | hold | release`: when which pipeline runs, from a file."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from yanmo.common.answers import answer
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import EnvironmentFault, ExitCode, UsageError
from yanmo.common.logs import setup
from yanmo.common.words import plural
from yanmo.options.command_line import load_command
from yanmo.options.fields import default_argv, opt, word
from yanmo.options.nearest import did_you_mean
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import KFP_NAMESPACE, PlaceOptions, own_namespace
from yanmo_pipelines.cluster.plan import Plan, planned
from yanmo_pipelines.cluster.refusals import Forbidden, NoAnswer, NotFound
from yanmo_pipelines.cluster.schedules.file import Schedule, read_schedules
from yanmo_pipelines.cluster.schedules.recurring import RecurringRuns
from yanmo_pipelines.cluster.submit import cluster_if_any

log = logging.getLogger(__name__)
DIFFERS = 1
"""Exit code of `diff` where an apply would change something, as kubectl's."""
_ABOUT = "Schedules from a file: recurring runs of KFP."
_SETTINGS, _ZONE = "pipeline-install-config", "cronScheduleTimezone"
_KUEUE = "apis/kueue.x-k8s.io"
_HELD, _OPEN = "HoldAndDrain", "None"
"""Stop policies of a LocalQueue: what was admitted gets SIGTERM and its grace to save; admitted again it goes
on. KFP's own pods are in no queue: they keep to `--night`."""


@dataclass(frozen=True, kw_only=True)
class FileOptions(PlaceOptions, group="schedule"):
    """What apply, diff and delete share."""

    file: str = word("the file of schedules (docs/tutorials/every-night.md)")
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
    """Make what runs by the clock as the file says.

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
            answer(_set_queue(options, _HELD if name == "hold" else _OPEN))
            return ExitCode.DONE
        assert isinstance(options, FileOptions)
        schedules = read_schedules(options.file)
        kubernetes = cluster_if_any(options)
        namespace = options.namespace or (kubernetes.namespace if kubernetes else own_namespace())
        runs = RecurringRuns(KfpApi.of(options, namespace))
        if name == "delete":
            return _delete(runs, options.only or tuple(schedules))
        chosen = _chosen(options, schedules)
        _check_zones(chosen, options.kfp_timezone, kubernetes)
        plans = {each: plan_of(schedule) for each, schedule in chosen.items()}  # before one changes
        return _diff(runs, chosen, plans) if name == "diff" else _apply(runs, chosen, plans)

    return ended("schedule", serve, "the same command goes on")


def _check_zones(chosen: Mapping[str, Schedule], declared: str, kubernetes: KubernetesApi | None) -> None:
    """Refuse times of another zone than that of KFP's clock, which has one for all recurring runs.

    Args:
        declared: the zone that a person says KFP has; "" for nothing.

    Raises:
        UsageError: a schedule is of another zone, or the cluster says another one than the person.
    """
    found = _installed_zone(kubernetes) if kubernetes else ""
    if found and declared and found != declared:
        raise UsageError(
            f"--kfp-timezone {declared}: ConfigMap {_SETTINGS} of namespace {KFP_NAMESPACE} says {_ZONE}: "
            f"{found}; leave the option out, or ask an administrator to change that"
        )
    zone = found or declared or "UTC"
    for name, schedule in chosen.items():
        if schedule.options.timezone != zone:
            raise UsageError(
                f"schedule {name}: timezone {schedule.options.timezone}, and KFP's clock is that of {zone}: "
                f"write cron, night and timezone in {zone}, or have KFP's zone changed ({_ZONE} in ConfigMap "
                f"{_SETTINGS}, said here by --kfp-timezone where it cannot be read)"
            )


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


def _apply(runs: RecurringRuns, chosen: Mapping[str, Schedule], plans: Mapping[str, Plan]) -> int:
    for name, schedule in chosen.items():
        answer(f"{name}: {runs.apply(schedule, plans[name])}")
        fires = "suspended: does not fire" if schedule.options.suspend else schedule.options.timezone
        answer(f"  cron  {schedule.cron}  ({fires})")
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


def _set_queue(options: QueueOptions, policy: str) -> str:
    """Set the stop policy of a LocalQueue of Kueue's; return what was done.

    Raises:
        EnvironmentFault: there is no such queue.
    """
    api, name = KubernetesApi.of(options), options.queue
    try:
        served = api.get(f"/{_KUEUE}", "ask for Kueue's versions")["preferredVersion"]["version"]
        path = api.in_namespace("localqueues", name, group=f"{_KUEUE}/{served}")
        queue = api.get(path, f"read LocalQueue {name}")
        if (queue.get("spec") or {}).get("stopPolicy", _OPEN) == policy:
            return f"unchanged: LocalQueue {name} has stop policy {policy}"
        api.merge(path, f"set the stop policy of LocalQueue {name}", {"spec": {"stopPolicy": policy}})
    except NotFound:
        raise EnvironmentFault(
            f"there is no LocalQueue {name} in namespace {api.namespace}, or no Kueue: apply the component "
            "night-window of manifests/, or give --queue or --namespace"
        ) from None
    return f"changed: LocalQueue {name} has stop policy {policy}"


if __name__ == "__main__":
    as_process(main)
