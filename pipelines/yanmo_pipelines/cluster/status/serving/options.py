"""The options of `yanmo status --serve`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import tzinfo

from yanmo.options.fields import Options, opt
from yanmo.options.time_zone import zone_of
from yanmo_pipelines.cluster.schedules.cron import Cron, parse_cron
from yanmo_pipelines.cluster.schedules.file import read_schedules
from yanmo_pipelines.cluster.status.serving.metrics import STAGES
from yanmo_pipelines.cluster.status.serving.nights import Plan
from yanmo_pipelines.resources import METRICS_PORT


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeOptions(Options, group="serve"):
    """Serve what the store says to Prometheus, with --serve, until it is stopped; it asks nobody else."""

    serve: bool = opt(
        False, "serve /metrics of the store, in the place of one look at everything", often=True
    )
    serve_port: int = opt(METRICS_PORT, "TCP port of --serve; 0 takes a free one", most=65535)
    serve_address: str = opt(
        "loopback",
        "addresses of this machine where it is served",
        choices=("loopback", "all"),
        variable="YANMO_METRICS_ADDRESS",
    )
    refresh_seconds: float = opt(30.0, "seconds between two looks at the store", above=0, most=3600)
    count_seconds: float = opt(
        86400.0, "seconds between two counts of all objects of the store, which list it whole; 0: never"
    )
    cron: str = opt(
        "",
        "when nights are due: minute, hour, day, month, day of the week, as '0 21 * * *'; empty: no night is",
        variable="YANMO_CRON",
        metavar="LINE",
    )
    schedules: str = opt(
        "",
        "file of `yanmo schedule`, in the place of --cron: when the nights of each of its channels are due; "
        "read again when it changes",
        variable="YANMO_SCHEDULES",
        metavar="FILE",
    )
    timezone: str = opt("UTC", "time zone of --cron, such as Asia/Shanghai", variable="YANMO_TIMEZONE")
    night_channel: str = opt("main", "channel of the nights", variable="YANMO_CHANNEL")
    night_seconds: float = opt(
        39600.0, "how long a night has to end well; 39600: from 21:00 to 08:00", above=0, most=31 * 86400
    )
    begin_seconds: float = opt(1800.0, "how soon after it is due something of a night must be seen", above=0)
    night_stage: str = opt("promote", "stage whose success ends a night", choices=STAGES)

    def contradictions(self) -> Iterator[str]:
        """What cannot be."""
        if self.cron and self.schedules:
            yield "--cron and --schedules contradict: expected one of them"
        try:
            zone_of(self.timezone)
            if self.cron:
                parse_cron(self.cron)
        except ValueError as error:
            yield str(error)

    def plans(self) -> dict[str, Plan]:
        """Channel -> when its nights are due.

        Raises:
            UsageError: the file of schedules is not there, or wrong.
        """
        if self.cron:
            return {self.night_channel: self._plan((parse_cron(self.cron), zone_of(self.timezone)))}
        clocks: dict[str, list[tuple[Cron, tzinfo]]] = {}
        for schedule in read_schedules(self.schedules).values() if self.schedules else ():
            if not schedule.options.suspend:
                clocks.setdefault(schedule.options.channel, []).append((schedule.cron, schedule.zone))
        return {channel: self._plan(*found) for channel, found in clocks.items()}

    def _plan(self, first: tuple[Cron, tzinfo], *also: tuple[Cron, tzinfo]) -> Plan:
        return Plan(
            cron=first[0],
            zone=first[1],
            also=also,
            seconds=self.night_seconds,
            begin_seconds=self.begin_seconds,
            stage=self.night_stage,
        )
