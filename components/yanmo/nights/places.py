"""Where what is said of nights lies in a store.

    nights/index.html, channels.json           the channels that have nights
    nights/<channel>/index.html, index.json    the newest nights, the months
    nights/<channel>/feed.xml                  the newest nights as an Atom feed
    nights/<channel>/2026-11.html, .json       the nights of a month
    nights/<channel>/2026-11-23-<run>.html     a night's own page
    nights/<channel>/runs/<run>.json           what is known of a night, by its run
    nights/<channel>/held-<verdict>.html       the page of a verdict about which a person decides

A page is made of the JSON document next to it alone, so that it can be made again. All of them grow by a few
hundred bytes a night, none without end: a month is a document of its own, the index has the newest nights.
"""

from __future__ import annotations

import re

from yanmo.nights.night import Row, run_part

NIGHTS = re.compile(
    r"nights/(?:index\.html|channels\.json"
    r"|[A-Za-z0-9][A-Za-z0-9_-]{0,99}/"
    r"(?:(?:index|\d{4}-\d\d)\.(?:html|json)|feed\.xml|\d{4}-\d\d-\d\d-[A-Za-z0-9_-]{1,100}\.html"
    r"|held-[0-9a-f]{12}\.html|runs/[A-Za-z0-9_-]{1,100}\.json))\Z",
    re.ASCII,
)
"""What lies below nights/. A store may be a whole bucket, in which others write as well."""
CHANNELS, TOP = "nights/channels.json", "nights/index.html"


def is_of_nights(name: str) -> bool:
    """Whether an object of the store is one of these, by its name."""
    return NIGHTS.match(name) is not None


def record_name(channel: str, run_id: str) -> str:
    """What is known of a night."""
    return f"nights/{channel}/runs/{run_part(run_id)}.json"


def page_name(channel: str, row: Row) -> str:
    """A night's own page."""
    return f"nights/{channel}/{row.name}.html"


def held_page_name(channel: str, verdict_key: str) -> str:
    """The page of a verdict about which a person decides; it follows the decision."""
    return f"nights/{channel}/held-{verdict_key[:12]}.html"


def list_name(channel: str, which: str = "index") -> str:
    """The document of a month (`2026-11`), or that of the newest nights."""
    return f"nights/{channel}/{which}.json"


def list_page(channel: str, which: str = "index") -> str:
    """The page of such a document."""
    return list_name(channel, which).removesuffix("json") + "html"


def feed_name(channel: str) -> str:
    """The newest nights as a feed."""
    return f"nights/{channel}/feed.xml"
