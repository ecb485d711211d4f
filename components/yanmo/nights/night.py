"""One night: its name, how it stands, in words and figures.

    nights/<channel>/index.html, index.json    the newest runs and their verdicts
    nights/<channel>/runs/<run>.json           what is known of one run

A night is one run in a channel, of a pipeline or of one stage alone, at whatever hour. Its date and time are
those at which it began, in the zone of its `--night`, else in the team's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from yanmo.common.words import Words as Words
from yanmo.common.words import visible
from yanmo.store.objects import as_part

BEGUN, DONE, TERMINATED = "begun", "done", "terminated"
STATES = (
    *(BEGUN, "promoted", "not promoted", "not valid", "held", "nothing new"),
    *(DONE, "paused", "failed", "given up", TERMINATED),
)
"""How a night stands. done: its last stage is, and gives no verdict."""
MOST_OF_A_TEXT, MOST_OF_A_VERSE, LINES_OF_A_VERSE = 2000, 140, 4
MOST_LINES, MOST_OF_A_LINE = 20, 800
VERDICT_PAGE = re.compile(r"cas/promote/[0-9a-f]{64}/[A-Za-z0-9_-]{1,100}/report\.html\Z")

NIGHTS = re.compile(
    r"nights/[A-Za-z0-9][A-Za-z0-9_-]{0,99}/(?:index\.(?:html|json)|runs/[A-Za-z0-9_-]{1,100}\.json)\Z",
    re.ASCII,
)
"""What lies below nights/. A store may be a whole bucket, in which others write as well."""


def plain(text: str, most: int = MOST_OF_A_TEXT) -> str:
    """A text for a page: no control characters, not endless, whole characters."""
    shown = visible(text[: most + 1]).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    shown = "".join(c for c in shown if c not in "\ufffe\uffff")
    return shown if len(shown) <= most else shown[: most - 1] + "…"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A night on the index: all that is shown there, so that no other file is read for it."""

    date: str
    run_id: str
    began: str
    """UTC, ISO 8601."""
    state: str
    time: str = ""
    """When it began, in the team's zone, HH:MM."""
    sentence: Words = field(default_factory=Words)
    bits: float | None = None
    """Bits per character of the challenger, mean over genres."""
    gain: float | None = None
    """Over the champion, as a share of its bits."""
    seconds: float = 0.0
    """How long its processes worked."""
    lines: tuple[str, ...] = ()
    """The card of a failure."""
    page: str = ""
    """The page of its verdict, an object of the store."""
    verse: str = ""
    genre: str = ""
    changed: str = ""
    """When this state began, UTC, ISO 8601."""

    @property
    def name(self) -> str:
        """Its own name in the channel: date and run."""
        return f"{self.date}-{as_part(self.run_id)}"

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"no night can be {self.state[:20]!r}")
        datetime.strptime(self.date, "%Y-%m-%d")
        seconds_of(self.began)
        if self.changed:
            seconds_of(self.changed)


def seconds_of(when: str) -> float:
    """Unix seconds of such a time."""
    return datetime.fromisoformat(when).timestamp()


def newest_first(rows: Iterable[Row]) -> list[Row]:
    """The rows as an index shows them."""
    return sorted(rows, key=lambda row: (row.date, row.began, row.name), reverse=True)
