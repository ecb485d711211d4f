"""What a team says of its nights: from the environment, or from files of the Secret that names the store.

YANMO_TIMEZONE         timezone          the team's zone, for dates
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

from yanmo.store.mounted import mounted

log = logging.getLogger(__name__)
VARIABLE, _FILE = "YANMO_TIMEZONE", "timezone"
"""Variable, and file of a mounted Secret."""


def team_zone() -> tuple[str, tzinfo]:
    """The team's zone and its name; UTC where nobody has said it, or this machine does not know it."""
    name = os.environ.get(VARIABLE, "").strip() or mounted(_FILE) or "UTC"
    try:
        return name, UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        log.warning("%s: this machine knows no zone %.40r; dates are of UTC", VARIABLE, name)
        return "UTC", UTC
