"""The zone in which KFP's clock runs, and a cron line of another zone written in it.

KFP has one zone for all of its recurring runs (`cronScheduleTimezone`, UTC unless an administrator said
otherwise). A line of a team's zone is written in KFP's where the two are always equally far apart, as
Shanghai and UTC are; where a clock change moves one of them, no line of KFP's fires as the team means it.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from itertools import islice

from yanmo.common.errors import UsageError
from yanmo.options.time_zone import zone_of
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import KFP_NAMESPACE
from yanmo_pipelines.cluster.refusals import Forbidden, NoAnswer, NotFound
from yanmo_pipelines.cluster.schedules.cron import Cron, parse_cron

_SETTINGS, _ZONE = "pipeline-install-config", "cronScheduleTimezone"
_YEARS_SECONDS = 3 * 366 * 86400.0
_MOST_COMPARED = 2000


def kfp_zone(declared: str, kubernetes: KubernetesApi | None) -> tuple[str, str]:
    """The name of KFP's zone and how it is known.

    Args:
        declared: what a person says; "" for nothing.

    Raises:
        UsageError: the cluster says another one.
    """
    found = _installed_zone(kubernetes) if kubernetes else ""
    if found and declared and found != declared:
        raise UsageError(
            f"--kfp-timezone {declared}: ConfigMap {_SETTINGS} of namespace {KFP_NAMESPACE} says {_ZONE}: "
            f"{found}; leave the option out, or ask an administrator to change that"
        )
    if found:
        return found, f"ConfigMap {_SETTINGS}"
    return (declared, "--kfp-timezone") if declared else ("UTC", "KFP's default; --kfp-timezone says another")


def _installed_zone(kubernetes: KubernetesApi) -> str:
    path = f"/api/v1/namespaces/{KFP_NAMESPACE}/configmaps/{_SETTINGS}"
    try:
        found = kubernetes.get(path, f"read ConfigMap {_SETTINGS}")
    except (NotFound, Forbidden, NoAnswer):
        return ""
    return str((found.get("data") or {}).get(_ZONE, ""))


def written_in(cron: Cron, zone: str, target: str, since: float) -> Cron:
    """The line of `zone` as one of `target` that fires at the same times.

    Raises:
        ValueError: there is none; says why.
    """
    here, there = zone_of(zone), zone_of(target)
    fires = list(islice(cron.between(here, since, since + _YEARS_SECONDS), _MOST_COMPARED))
    shifts = {_offset(there, at) - _offset(here, at) for at in _every_month(since)}
    if shifts == {timedelta(0)}:
        return cron
    if len(shifts) > 1:
        raise ValueError(
            f"the clocks of {zone} and {target} do not change together, so no line of KFP's fires at "
            f"{cron.line!r} of {zone} all year; give times of {target}, have KFP's zone changed "
            f"({_ZONE}), or apply the component night of manifests/, whose clock has a zone of its own"
        )
    (shift,) = shifts
    found = _shifted(cron, shift)
    if (
        found is None
        or list(islice(found.between(there, since, since + _YEARS_SECONDS), len(fires))) != fires
    ):
        raise ValueError(
            f"{cron.line!r} of {zone} cannot be written as one line of {target}, KFP's zone, as hours "
            f"or days begin at other moments there; give times of {target}"
        )
    return found


def _every_month(since: float) -> list[float]:
    """Three years of looks at a clock; a change lasts for months."""
    return [since + day * 86400.0 for day in range(0, 3 * 366, 7)]


def _offset(zone: tzinfo, at: float) -> timedelta:
    return datetime.fromtimestamp(at, zone).utcoffset() or timedelta(0)


def _shifted(cron: Cron, shift: timedelta) -> Cron | None:
    """The line with hours, minutes and days of the week moved; None where that is no line."""
    move = int(shift.total_seconds()) // 60
    times = [divmod(hour * 60 + minute + move, 1440) for hour in cron.hours for minute in cron.minutes]
    hours, minutes = {at // 60 for _, at in times}, {at % 60 for _, at in times}
    days = {day for day, _ in times}
    if len(hours) * len(minutes) != len(times):
        return None
    second, _, _, day, month, weekday = cron.fields
    if weekday not in "*?":
        if len(days) > 1:
            return None
        weekday = _listed({(on + min(days)) % 7 for on in cron.weekdays}, 7)
    minute, hour = _listed(minutes, 60), _listed(hours, 24)
    return parse_cron(f"{second} {minute} {hour} {day} {month} {weekday}")


def _listed(numbers: set[int], whole: int) -> str:
    return "*" if len(numbers) == whole else ",".join(map(str, sorted(numbers)))
