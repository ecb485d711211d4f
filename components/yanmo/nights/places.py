"""The names of a channel's records of runs, and of their page, in a store.

nights/<channel>/index.html, index.json    the newest runs and their verdicts
nights/<channel>/runs/<run>.json           what is known of one run
"""

from __future__ import annotations

import re

from yanmo.store.objects import as_part

NIGHTS = re.compile(
    r"nights/[A-Za-z0-9][A-Za-z0-9_-]{0,99}/(?:index\.(?:html|json)|runs/[A-Za-z0-9_-]{1,100}\.json)\Z",
    re.ASCII,
)
"""What lies below nights/. A store may be a whole bucket, in which others write as well."""


def record_name(channel: str, run_id: str) -> str:
    """What is known of a run."""
    return f"nights/{channel}/runs/{as_part(run_id)}.json"


def index_name(channel: str) -> str:
    """The document of the newest runs."""
    return f"nights/{channel}/index.json"


def index_page(channel: str) -> str:
    """The page of that document."""
    return f"nights/{channel}/index.html"
