"""The two ways in which a schedule fires, and that it fires in one of them alone."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from yanmo.common.errors import UsageError
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi, NoCluster
from yanmo_pipelines.cluster.place import PlaceOptions, own_namespace
from yanmo_pipelines.cluster.plan import Plan, planned
from yanmo_pipelines.cluster.schedules.cron_job import CronJobs
from yanmo_pipelines.cluster.schedules.cron_job import called as cron_job_of
from yanmo_pipelines.cluster.schedules.difference import Difference
from yanmo_pipelines.cluster.schedules.file import Schedule
from yanmo_pipelines.cluster.schedules.recurring import RecurringRuns
from yanmo_pipelines.cluster.schedules.zones import kfp_zone, written_in
from yanmo_pipelines.cluster.submit import cluster_if_any

log = logging.getLogger(__name__)
_FIELDS = ("second", "minute", "hour", "day", "month", "weekday")


class Ways:
    """KFP and Kubernetes, each asked where it is known."""

    def __init__(self, options: PlaceOptions, kfp_timezone: str, schedules: Iterable[Schedule]) -> None:
        """
        Raises:
            UsageError: a schedule needs KFP, and nothing says where it is.
            NoCluster: one needs Kubernetes, and nothing says where that is.
        """
        wanted = {schedule.options.by for schedule in schedules}
        kubernetes = KubernetesApi.of(options) if "cronjob" in wanted else cluster_if_any(options)
        self.zone, self._zone_by = kfp_zone(kfp_timezone, kubernetes)
        self._cron_jobs = CronJobs(kubernetes) if kubernetes else None
        try:
            api = KfpApi.of(
                options, options.namespace or (kubernetes.namespace if kubernetes else own_namespace())
            )
            self._recurring: RecurringRuns | None = RecurringRuns(api, self.zone)
        except UsageError:
            if "kfp" in wanted:
                raise
            self._recurring = None
        if not self._recurring and not self._cron_jobs:
            raise NoCluster(
                "neither KFP nor a Kubernetes cluster is known here; give --host, or set KUBECONFIG"
            )
        unknown = (
            "KFP (--host)" if not self._recurring else "the cluster (KUBECONFIG)" if not kubernetes else ""
        )
        if unknown:
            log.info("%s is not known here: what a schedule may have left there is not looked for", unknown)

    def planned(self, schedule: Schedule) -> Plan:
        """What its runs are; the same check as that of `yanmo submit`.

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

    def apply(self, schedule: Schedule, plan: Plan) -> str:
        """Make it so: first it is ended where it no longer belongs, so that it never fires in both."""
        if schedule.options.by == "kfp":
            assert self._recurring
            moved = self._cron_jobs.delete(schedule.name) if self._cron_jobs else 0
            done = self._recurring.apply(schedule, plan)
        else:
            assert self._cron_jobs
            moved = self._recurring.delete(schedule.name) if self._recurring else 0
            done = self._cron_jobs.apply(schedule)
        return f"{done}{', in the place of the other way' if moved else ''}"

    def differences(self, schedule: Schedule) -> list[Difference]:
        """What an apply would change, in the one way and in the other."""
        plan, name = self.planned(schedule), schedule.name
        found = []
        if schedule.options.by == "kfp":
            assert self._recurring
            found.append(self._recurring.difference(schedule, plan))
            if self._cron_jobs and self._cron_jobs.found(name):
                found.append(Difference("CronJob", (f"- {cron_job_of(name)}",)))
        else:
            assert self._cron_jobs
            found.append(self._cron_jobs.difference(schedule))
            left = self._recurring.made(name) if self._recurring else []
            found += [Difference("recurring run of KFP", (f"- {run['recurring_run_id']}",)) for run in left]
        return found

    def others(self, names: Collection[str]) -> set[str]:
        """Schedules that were made and are not among `names`."""
        found = self._recurring.names() if self._recurring else set()
        found |= self._cron_jobs.names() if self._cron_jobs else set()
        return found - set(names) - {""}

    def delete(self, name: str) -> str:
        """Delete what a schedule made; says what there was."""
        runs = self._recurring.delete(name) if self._recurring else 0
        jobs = self._cron_jobs.delete(name) if self._cron_jobs else 0
        said = [
            *([f"{runs} recurring run{'s' * (runs > 1)} of KFP"] if runs else []),
            *(["CronJob"] if jobs else []),
        ]
        return f"deleted: {' and '.join(said)}" if said else "nothing to delete"

    def explained(self, schedule: Schedule) -> str:
        """The line as its server takes it, field by field, and in which zone."""
        if schedule.options.by == "cronjob":
            fields, zone = schedule.cron.fields[1:], schedule.options.timezone
        else:
            line = written_in(schedule.cron, schedule.options.timezone, self.zone, 0.0)
            fields, zone = line.fields, f"{self.zone}, KFP's zone by {self._zone_by}"
        parts = ", ".join(f"{n} {f}" for n, f in zip(_FIELDS[-len(fields) :], fields, strict=True))
        return f"{' '.join(fields)}  ({parts}; {zone})"
