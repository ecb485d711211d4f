"""Which night a moment belongs to: from noon to noon, so that 21:00 and the 08:00 after it are one."""

from __future__ import annotations

from datetime import date, datetime, timedelta, tzinfo


def evening_of(seconds: float, zone: tzinfo) -> date:
    """The day on which the night of `seconds`, Unix time, began by the clocks of `zone`."""
    return (datetime.fromtimestamp(seconds, zone) - timedelta(hours=12)).date()
