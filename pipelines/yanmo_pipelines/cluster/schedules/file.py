"""A file of schedules: when which pipeline runs, for whom, by what.

    timezone: Asia/Shanghai            # of all schedules that do not say another
    schedules:
      nightly:
        cron: "0 21 * * *"             # minute, hour, day, month, weekday
        channel: main
        night: 21:00-08:00             # trainings pause outside of it, and go on the next night
        set: {train_steps: 400, train.layers: 4}

Every value is read as a flag of `yanmo submit` is; what is wrong with one names the schedule and the key.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.common.given_file import given_text
from yanmo.common.names import name_problems
from yanmo.common.words import did_you_mean, plural
from yanmo.options.fields import opt, values_of
from yanmo.options.values import WrongValue, brief, zone_of
from yanmo.options.yaml_file import plain_yaml, yaml_problem
from yanmo_pipelines.cluster.schedules.cron import Cron, parse_cron
from yanmo_pipelines.compile import COMPILED, PIPELINES
from yanmo_pipelines.parameters import form_of
from yanmo_pipelines.pod_options import PodOptions

_WHAT = "a YAML file of schedules"
_OF_FILE = ("timezone", "schedules")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,34}[a-z0-9])?\Z")
"""KFP's name of the recurring run is `yanmo-` and this."""
_YEAR_SECONDS = 366 * 86400.0
_ALONE = "end"


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(PodOptions, group="schedule"):
    """What a schedule of the file may say."""

    cron: str = opt("", "when it fires")
    timezone: str = opt("UTC", "time zone of the cron line and of the night")
    suspend: bool = opt(False, "do not fire until this is false again")
    night: str = opt("", "hours of the night, HH:MM-HH:MM: --night of the training")
    channel: str = opt("main", "series of runs; default: that of the pipeline's form")
    pipeline: str = opt("language_model", "as for yanmo submit")
    store: str = opt("", "as for yanmo submit")
    experiment: str = opt("Default", "experiment of KFP's that its runs belong to")
    service_account: str = opt("", "service account of the runs' pods")

    def contradictions(self) -> list[str]:
        """Return what cannot be."""
        found = [*super().contradictions(), *name_problems("channel", self.channel)]
        found += [] if self.cron else ["cron is missing: expected such as '0 21 * * *' (21:00 every day)"]
        if len(self.experiment) > 128:
            found.append(f"experiment: {plural(len(self.experiment), 'character')}; give at most 128")
        return found


@dataclass(frozen=True)
class Schedule:
    """One schedule, checked as far as it can be without asking the cluster."""

    name: str
    options: ScheduleOptions
    settings: Mapping[str, str]
    """Fields of the run form, and options of stages."""
    cron: Cron
    zone: tzinfo

    def next_times(self, since: float, count: int = 3) -> list[float]:
        """Return when it fires next; Unix seconds."""
        return list(islice(self.cron.after(self.zone, since), count))


def read_schedules(path: str) -> dict[str, Schedule]:
    """The schedules of a file, by name.

    Raises:
        UsageError: what is wrong, where, and what was expected.
    """
    from yaml import YAMLError

    try:
        text = given_text(Path(path), _WHAT, wrong=UsageError)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; expected {_WHAT} (docs/tutorials/every-night.md)") from None
    try:
        tree = plain_yaml(text)
    except (ValueError, RecursionError, YAMLError) as error:
        problem, said = yaml_problem(error), str(getattr(error, "problem", "") or "")
        is_of_cron = "alphabetic or numeric" in said or "cannot start any token" in said
        hint = "; a cron line that begins with * stands in quotation marks" if is_of_cron else ""
        raise UsageError(f"{path}: expected {_WHAT}; {problem}{hint}") from error
    tree = _mapping(tree, path, f"{_WHAT}: `schedules:` and under it names")
    for key in tree:
        if key not in _OF_FILE:
            raise UsageError(
                f"{path}: unknown key {brief(key)}{did_you_mean(key, _OF_FILE)}; expected timezone, schedules"
            )
    entries = _mapping(tree.get("schedules"), f"{path}: schedules", "a mapping of names, such as `nightly:`")
    if not entries:
        raise UsageError(f"{path}: no schedule in it; expected at least one")
    zone = tree.get("timezone")
    if zone is not None and not isinstance(zone, str):
        raise UsageError(f"{path}: timezone: expected a name such as Asia/Shanghai")
    found = {name: _schedule(name, entry, zone or "UTC", path) for name, entry in entries.items()}
    _check_channels(found, path)
    return found


def _check_channels(found: Mapping[str, Schedule], path: str) -> None:
    """Refuse two schedules of a channel that fire at the same time: one of their nights would do nothing."""
    now = time.time()
    for one, other in combinations([each for each in found.values() if not each.options.suspend], 2):
        if (one.options.store, one.options.channel) != (other.options.store, other.options.channel):
            continue
        first, second = (set(each.cron.between(each.zone, now, now + _YEAR_SECONDS)) for each in (one, other))
        if both := first & second:
            raise UsageError(
                f"{path}: schedules {one.name} and {other.name} both start a run of channel "
                f"{one.options.channel} on {shown_time(min(both), one.zone)}, and two nights of one never "
                "train at once; give them different hours or channels, or suspend one"
            )


def _mapping(tree: Any, where: str, expected: str) -> dict[str, Any]:
    if not isinstance(tree, dict):
        raise UsageError(f"{where}: expected {expected}")
    return tree


def _schedule(name: str, entry: Any, zone: str, path: str) -> Schedule:
    """One entry of the file; its errors name it."""
    if not _NAME.match(name):
        raise UsageError(
            f"{path}: schedule {brief(name)}: expected a name of at most 36 small letters, digits and -"
        )
    where = f"{path}: schedule {name}"
    tree = _mapping(entry, where, "`cron:` and what else it says")
    settings = _settings(tree.pop("set", None), where)
    try:
        options = _options({"timezone": zone, **tree})
        settings = _with_own(options, settings)
        return Schedule(name, options, settings, parse_cron(options.cron), zone_of(options.timezone))
    except ValueError as error:
        raise UsageError(f"{where}: {str(error).replace('--', '')}") from error


def _settings(tree: Any, where: str) -> dict[str, str]:
    found = {} if tree is None else _mapping(tree, f"{where}: set", "a mapping, such as {train_steps: 400}")
    for name, value in found.items():
        if not isinstance(value, str | None):
            raise UsageError(f"{where}: set: {brief(name)}: expected a single value")
    return {name: value or "" for name, value in found.items()}


def _options(tree: Mapping[str, Any]) -> ScheduleOptions:
    known, values = values_of(ScheduleOptions), {}
    names = sorted([*known, "set"])
    for key, text in tree.items():
        if key not in known:
            hint = did_you_mean(key.replace("_", ""), names) or did_you_mean(key, names)
            raise UsageError(f"unknown key {brief(key)}{hint}; expected one of {', '.join(names)}")
        if not isinstance(text, str | None):
            raise UsageError(f"{key}: expected a single value")
        try:
            values[key] = known[key].read(text or "")
        except WrongValue as error:
            raise UsageError(f"{key}: {error}") from None
    said = {name: each for name, each in values.items() if each is not None}
    pipeline = said.get("pipeline")
    if pipeline in PIPELINES and "channel" not in said:
        said["channel"] = form_of(COMPILED / f"{pipeline}.yaml")["channel"]["defaultValue"]
    return ScheduleOptions(**said)


def _with_own(options: ScheduleOptions, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, and what the schedule's own keys say of the training."""
    found = dict(settings)
    if options.pipeline not in PIPELINES or options.pipeline == "data_only":
        if options.night:
            raise ValueError(
                f"night is for a training: pipeline {options.pipeline} may have none; give it in set"
            )
        return found
    own = {"train.when_busy": _ALONE}
    if options.night:
        own |= {"train.night": options.night, "train.timezone": options.timezone}
        for name in ("train.night", "train.timezone"):
            if name in found:
                raise ValueError(f"set: {name} is said by night and timezone already; keep one")
    return {**own, **found}


def shown_time(at: float, zone: tzinfo) -> str:
    """A time as a team reads it: Mon 2026-11-23 21:00 +0800."""
    wall = datetime.fromtimestamp(at, zone)
    return f"{wall:%a %Y-%m-%d %H:%M %z}"
