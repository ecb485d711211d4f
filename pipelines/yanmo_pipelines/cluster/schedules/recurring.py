"""A schedule as a recurring run of KFP's.

KFP cannot change one, and fires an enabled one at once for the last time that fell between its making (or its
last run) and now, whatever `no_catchup` says. So a changed schedule is a new recurring run:

    1. the new one is made, disabled           killed here: the old one fires as before
    2. the old one is disabled                 killed here: none fires, until the next apply
    3. the new one is enabled                  a time that fell between 1 and 3 fires now, once
    4. the old one is deleted, its runs left   killed here: the new one fires

At no moment do two fire. What an apply that was killed left behind is known by the mark in the description:
the next one takes a disabled one for nothing, begins again, and leaves one. Nothing without it is touched.

KFP has no compare-and-swap: two applies at once may each leave one. `diff` then says so, the next apply
leaves one, and the lease of the channel's training keeps their nights apart until then.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from yanmo.common.errors import UsageError
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.plan import Plan
from yanmo_pipelines.cluster.refusals import NotFound
from yanmo_pipelines.cluster.schedules.cron import written_in
from yanmo_pipelines.cluster.schedules.file import Schedule

WHAT = "recurring run of KFP"
_MARK = "yanmo.dev/schedule="
_SAYS = "Made by `yanmo schedule apply`, which changes it from its file; "
_ACCOUNT, _OWN = "service-account=", "KFP's own"


class RecurringRuns:
    """The recurring runs of one KFP that schedules made."""

    def __init__(self, api: KfpApi, zone: str) -> None:
        """
        Args:
            zone: KFP's time zone.
        """
        self._api, self.zone = api, zone
        self._experiments: dict[str, str] = {}

    def made(self, name: str) -> list[dict[str, Any]]:
        """Those of a schedule, the oldest first.

        Raises:
            UsageError: one of that name is somebody else's.
        """
        found = self._api.recurring_runs(name)
        foreign = [run for run in found if not _is_ours(run, name)]
        if foreign:
            raise UsageError(
                f"{self._api.address}: recurring run {name} ({foreign[0]['recurring_run_id']}) was not made "
                "by `yanmo schedule`; give the schedule another name, or delete that one in KFP's UI"
            )
        return sorted(found, key=lambda run: (str(run.get("created_at", "")), run["recurring_run_id"]))

    def names(self) -> set[str]:
        """All schedules that have one."""
        found = self._api.recurring_runs()
        return {run["display_name"] for run in found if _is_ours(run, run.get("display_name", ""))}

    def difference(self, schedule: Schedule, plan: Plan) -> list[str]:
        """Return what an apply would change: `- cron: ...` as it is, `+ cron: ...` as it would be."""
        wanted, found = self._wanted(schedule, plan), self.made(schedule.name)
        if not found:
            return _lines({}, wanted)
        current = next((run for run in found if _is_enabled(run)), found[-1])
        lines = _lines(self._shown(current), wanted)
        left = len(found) - 1
        return [*lines, f"- {left} more of this schedule, left by an apply"] if left else lines

    def apply(self, schedule: Schedule, plan: Plan) -> str:
        """Make it so; return what was done."""
        found = self.made(schedule.name)
        wanted = self._wanted(schedule, plan)
        good = [run for run in found if not _lines(self._shown(run), wanted)]
        kept = good[0] if good else None
        if kept is None:
            kept = self._api.create_recurring_run(self._body(schedule, plan))
            self._replace(found, kept, schedule)
            return f"{'changed' if found else 'made'}: {WHAT} {kept['recurring_run_id']}"
        others = [run for run in found if run is not kept]
        self._remove(others)
        did = f"removed {len(others)} that an apply had left" if others else "unchanged"
        return f"{did}: {WHAT} {kept['recurring_run_id']}"

    def _replace(self, old: list[dict[str, Any]], new: Mapping[str, Any], schedule: Schedule) -> None:
        for run in old:
            with contextlib.suppress(NotFound):
                self._api.switch_recurring_run(run["recurring_run_id"], on=False)
        if not schedule.options.suspend:
            self._api.switch_recurring_run(new["recurring_run_id"], on=True)
        self._remove(old)

    def delete(self, name: str) -> int:
        """Delete those of a schedule; how many there were. Runs that go on go on."""
        found = self.made(name)
        self._remove(found)
        return len(found)

    def _remove(self, runs: list[dict[str, Any]]) -> None:
        for run in runs:
            with contextlib.suppress(NotFound):  # it is gone already
                self._api.switch_recurring_run(run["recurring_run_id"], on=False)
                self._api.delete_recurring_run(run["recurring_run_id"])

    def line(self, schedule: Schedule) -> str:
        """Return its cron line in KFP's zone. KFP takes five fields for a line without a weekday: so six."""
        try:
            cron = written_in(schedule.cron, schedule.options.timezone, self.zone, time.time())
        except ValueError as error:
            raise UsageError(f"schedule {schedule.name}: {error}") from error
        return " ".join(("0", *cron.fields))

    def _wanted(self, schedule: Schedule, plan: Plan) -> dict[str, Any]:
        """Return what it says, by names that a person reads."""
        options = schedule.options
        return {
            "cron": self.line(schedule),
            "suspend": options.suspend,
            "runs at once": 1,
            "pipeline": f"{plan.name} {_contents(plan.version)}",
            "experiment": options.experiment,
            "service_account": options.service_account or _OWN,
            **{f"parameter {name}": value for name, value in plan.values.items()},
        }

    def _shown(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """The same of one that KFP has."""
        parameters = (run.get("runtime_config") or {}).get("parameters") or {}
        said = str(run.get("description", "")).split()  # KFP shows its own where none was asked for
        account = next((word.removeprefix(_ACCOUNT) for word in said if word.startswith(_ACCOUNT)), _OWN)
        return {
            "cron": (run.get("trigger") or {}).get("cron_schedule", {}).get("cron", ""),
            "suspend": not _is_enabled(run),
            "runs at once": int(run.get("max_concurrency") or 0),
            "pipeline": self._pipeline(run),
            "experiment": self._experiment(str(run.get("experiment_id", ""))),
            "service_account": account,
            **{f"parameter {name}": value for name, value in parameters.items()},
        }

    def _pipeline(self, run: Mapping[str, Any]) -> str:
        reference = run.get("pipeline_version_reference") or {}
        try:
            found = self._api.version(
                reference.get("pipeline_id", ""), reference.get("pipeline_version_id", "")
            )
        except NotFound:
            return f"a version that was deleted ({reference.get('pipeline_version_id', '')})"
        info = (found.get("pipeline_spec") or {}).get("pipeline_spec", found.get("pipeline_spec") or {})
        return (
            f"{info.get('pipelineInfo', {}).get('name', '?')} {_contents(str(found.get('display_name', '')))}"
        )

    def _experiment(self, id: str) -> str:
        if id not in self._experiments:
            try:
                self._experiments[id] = str(self._api.experiment(id).get("display_name", ""))
            except NotFound:
                self._experiments[id] = f"one that was deleted ({id})"
        return self._experiments[id]

    def _body(self, schedule: Schedule, plan: Plan) -> dict[str, Any]:
        """As KFP is asked to make it: disabled."""
        options = schedule.options
        return {
            "display_name": schedule.name,
            "description": f"{_SAYS}{_MARK}{schedule.name}"
            + (f" {_ACCOUNT}{options.service_account}" if options.service_account else ""),
            "experiment_id": self._api.experiment_id(options.experiment),
            "pipeline_version_reference": self._api.upload(plan.name, plan.version, plan.text, plan.about),
            "runtime_config": {"parameters": dict(plan.values)},
            "service_account": options.service_account,
            "max_concurrency": "1",
            "trigger": {"cron_schedule": {"cron": self.line(schedule)}},
            "mode": "DISABLE",
            "no_catchup": True,  # a night that was missed would train on the texts of today
        }


def _lines(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return the values that differ, by name."""
    found = []
    for name in sorted({*now, *wanted}):
        if now.get(name) != wanted.get(name):
            found += [f"- {name}: {now[name]}"] if name in now else []
            found += [f"+ {name}: {wanted[name]}"] if name in wanted else []
    return found


def _is_ours(run: Mapping[str, Any], name: str) -> bool:
    return f"{_MARK}{name}" in str(run.get("description", "")).split()


def _contents(version: str) -> str:
    """Return the part of a version's name that says what is in it, which another commit may have too."""
    return "-".join(version.rsplit("-", 2)[1:]) or version


def _is_enabled(run: Mapping[str, Any]) -> bool:
    return str(run.get("status") or run.get("mode") or "") in ("ENABLED", "ENABLE")
