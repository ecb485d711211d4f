"""What a team says of its nights: from the environment, or from files of the Secret that names the store.

YANMO_PAGES_URL        pages_url         where a browser finds what lies in the store: https://...
YANMO_TIMEZONE         timezone          the team's zone, for dates
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, tzinfo
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from yanmo.nights.index import index_page
from yanmo.store.mounted import mounted
from yanmo.store.objects import ObjectStore

log = logging.getLogger(__name__)
VARIABLES = {"pages": ("YANMO_PAGES_URL", "pages_url"), "timezone": ("YANMO_TIMEZONE", "timezone")}
"""What is read -> variable, and file of a mounted Secret."""


def index_address(store: ObjectStore, channel: str) -> str:
    """Where a person finds the index: in a browser if somebody said where, else in the store."""
    return f"{_pages_url() or store.uri}/{index_page(channel)}"


def _pages_url() -> str:
    """Where a browser finds the store's objects, without a last slash; "" where nobody has said so."""
    url = _said("pages").rstrip("/")
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
    except ValueError:
        is_good = False
    is_plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= 2000
    if url and not (is_good and is_plain and not parts.query and not parts.fragment):
        log.warning("%s is not used: expected https://HOST/PATH, without a user", VARIABLES["pages"][0])
        return ""
    return url


def team_zone() -> tuple[str, tzinfo]:
    """The team's zone and its name; UTC where nobody has said it, or this machine does not know it."""
    name = _said("timezone") or "UTC"
    try:
        return name, UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        log.warning("%s: this machine knows no zone %.40r; dates are of UTC", VARIABLES["timezone"][0], name)
        return "UTC", UTC


def _said(what: str) -> str:
    variable, file = VARIABLES[what]
    return os.environ.get(variable, "").strip() or mounted(file)
