"""The time zone that an option `--timezone` names."""

from __future__ import annotations

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo


def zone_of(name: str) -> tzinfo:
    """Return the time zone called `name`.

    Raises:
        ValueError: this machine knows no such zone.
    """
    if name == "UTC":  # known to every machine
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"--timezone {name!r}: not a time zone that this machine knows; expected a name such as "
            "Asia/Shanghai (Debian's package tzdata holds them)"
        ) from None
