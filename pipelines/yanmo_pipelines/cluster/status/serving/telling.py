"""What nobody else can say of a night is entered in the store's pages by who watches: dead, or never begun.

Only nights of the last days are called missed here: older ones may have lost their records to `yanmo store
gc`. A night that begins after all is missed no more.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping

from yanmo.common.errors import DataError
from yanmo.nights.night import night_date, seconds_of
from yanmo.nights.overdue import forget_missed, settle, tell_missed
from yanmo.nights.publishing import rows_shown
from yanmo.store.objects import ObjectStore
from yanmo_pipelines.cluster.status.serving.nights import Night, Plan

log = logging.getLogger(__name__)
_RECENT_SECONDS = 6 * 86400.0
_HAS_BEGUN = ("begun", "met", "paused", "failed")


class NightTeller:
    """Tells of the nights of one store, as they are seen."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._told: dict[tuple[str, float], str] = {}

    def tell(
        self, channels: Iterable[str], due: Mapping[str, tuple[Plan, Iterable[Night]]], now: float
    ) -> None:
        """Enter what is new.

        Args:
            due: channel -> its plan, and the nights of it that are due, as they stand.

        Raises:
            OSError, EnvironmentFault: the store cannot be read or written now.
            DataError: something that is said of nights is damaged; all else was told.
        """
        known = dict.fromkeys([*channels, *due])  # one that is due may have no output yet
        acts: list[Callable[[], object]] = [
            functools.partial(settle, self._store, channel) for channel in known
        ]
        acts += [functools.partial(self._tell_due, channel, *found, now) for channel, found in due.items()]
        damaged = None
        for act in acts:
            try:
                act()
            except DataError as error:
                damaged = damaged or error
        if damaged is not None:
            raise damaged

    def _tell_due(self, channel: str, plan: Plan, nights: Iterable[Night], now: float) -> None:
        for night in nights:
            told = channel, night.begin
            if now - night.begin < _RECENT_SECONDS and self._told.get(told) != night.state:
                self._tell_of(channel, plan, night)
                self._told[told] = night.state

    def _tell_of(self, channel: str, plan: Plan, night: Night) -> None:
        zone = plan.zone
        if night.state == "missed":
            rows = rows_shown(self._store, channel)
            began = [seconds_of(row.began) for row in rows if row.state != "missed"]
            if any(night.begin <= at < night.end for at in began):
                return
            if tell_missed(self._store, channel, night.begin, zone, str(zone)):
                log.warning("night of %s: missed", night_date(night.begin, zone))
        elif night.state in _HAS_BEGUN and forget_missed(self._store, channel, night.begin, zone):
            log.info("night of %s: begun after all", night_date(night.begin, zone))
