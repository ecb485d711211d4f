"""Where a team hears of its nights: from the environment, or from files of the Secret that names the store.

    YANMO_WEBHOOK_URL      webhook_url       address that a line is sent to; whoever has it may write there
    YANMO_WEBHOOK_SECRET   webhook_secret    what DingTalk's robots are signed with
    YANMO_WEBHOOK_SHAPE    webhook_shape     slack, dingtalk or json; by default the address says it
    YANMO_PAGES_URL        pages_url         where a browser finds what lies in the store: https://...
    YANMO_TIMEZONE         timezone          the team's zone, for dates

No address or secret is an option, so that none reaches a manifest, a log, a run form, or a list of processes.
They are read at every use, so that a rotated Secret is seen.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from yanmo.store.mounted import mounted

log = logging.getLogger(__name__)
SHAPES = ("slack", "dingtalk", "json")
_HOSTS = {"hooks.slack.com": "slack", "oapi.dingtalk.com": "dingtalk", "api.dingtalk.com": "dingtalk"}
VARIABLES = {
    "url": ("YANMO_WEBHOOK_URL", "webhook_url"),
    "secret": ("YANMO_WEBHOOK_SECRET", "webhook_secret"),
    "shape": ("YANMO_WEBHOOK_SHAPE", "webhook_shape"),
    "pages": ("YANMO_PAGES_URL", "pages_url"),
    "timezone": ("YANMO_TIMEZONE", "timezone"),
}
"""What is read -> variable, and file of a mounted Secret."""


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """Where a line is sent; its address and secret are in no text of it."""

    url: str = field(repr=False)
    shape: str
    secret: str = field(default="", repr=False)

    @property
    def host(self) -> str:
        """The server, which is no secret."""
        return urlsplit(self.url).hostname or "?"


def webhook() -> Webhook | None:
    """Where a line is sent; None where nobody has said so.

    Raises:
        ValueError: what was said cannot be; the text holds nothing of the address.
    """
    url = _said("url")
    if not url:
        return None
    variable = VARIABLES["url"][0]
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 raises where it is none
    except ValueError:
        raise ValueError(f"{variable} is no address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not _is_address(url):
        raise ValueError(f"{variable} is no address: expected https://HOST/PATH")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"{variable} has a user or a password, which are not sent; put a token in its path")
    shape = _said("shape") or _HOSTS.get(parts.hostname, "json")
    if shape not in SHAPES:
        raise ValueError(f"{VARIABLES['shape'][0]}: expected {', '.join(SHAPES)}")
    return Webhook(url=url, shape=shape, secret=_said("secret"))


def pages_url() -> str:
    """Where a browser finds the store's objects, without a last slash; "" where nobody has said so."""
    url = _said("pages").rstrip("/")
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
    except ValueError:
        is_good = False
    if url and not (is_good and _is_address(url) and not parts.query and not parts.fragment):
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


def _is_address(url: str) -> bool:
    return url.isascii() and url.isprintable() and " " not in url and len(url) <= 2000


def _said(what: str) -> str:
    variable, file = VARIABLES[what]
    return os.environ.get(variable, "").strip() or mounted(file)
