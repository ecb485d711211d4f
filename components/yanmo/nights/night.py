"""What is said of one night: its name, its date, how it stands, in words and figures.

A night is one run of a pipeline in a channel. Its date is that of the evening on which it began, in the
team's zone: what begins at 02:00 within `--night 21:00-08:00` has the date of the evening before. A run that
begins outside of such hours, or that has none, has the date of the day on which it began.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from yanmo.common.answers import visible
from yanmo.store.objects import as_part

BEGUN = "begun"
STATES = (
    *(BEGUN, "promoted", "not promoted", "not valid", "held"),
    *("nothing new", "paused", "failed", "given up"),
)
"""How a night stands."""
MOST_OF_A_TEXT, MOST_OF_A_VERSE, LINES_OF_A_VERSE = 2000, 140, 4
MOST_LINES, MOST_OF_A_LINE = 20, 800
_PAGE = re.compile(r"cas/promote/[0-9a-f]{64}/[A-Za-z0-9_-]{1,100}/report\.html\Z")


def night_date(began: float, zone: tzinfo, hours: str = "") -> str:
    """The date of a night, YYYY-MM-DD.

    Args:
        began: when its run began, Unix seconds.
        hours: of the night, `21:00-08:00`; "" for none.
    """
    at = datetime.fromtimestamp(began, zone)
    first, _, last = hours.partition("-")
    over_midnight = bool(last) and _minutes(first) > _minutes(last)
    if over_midnight and at.hour * 60 + at.minute < _minutes(last):
        return (at.date() - timedelta(days=1)).isoformat()
    return at.date().isoformat()


def _minutes(time: str) -> int:
    hour, _, minute = time.partition(":")
    return int(hour) * 60 + int(minute or 0)


@dataclass(frozen=True)
class Words:
    """A text in both languages of a page."""

    en: str = ""
    zh: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Words:
        """From what JSON holds: no longer than a person reads, nothing invisible."""
        return cls(plain(str(values["en"])), plain(str(values["zh"])))


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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Row:
        """From what JSON holds.

        Raises:
            ValueError, KeyError, TypeError: it is no row; what reads a list must not fail on it later.
        """
        date, state = str(values["date"]), str(values["state"])
        if date_of(date) != date or state not in STATES:
            raise ValueError(f"no night of {date[:20]!r} can be {state[:20]!r}")
        return cls(
            date=date,
            run_id=plain(str(values["run_id"]), 200),
            began=iso(str(values["began"])),
            state=state,
            sentence=Words.of(values["sentence"]),
            bits=finite(values.get("bits")),
            gain=finite(values.get("gain")),
            seconds=max(finite(values.get("seconds")) or 0.0, 0.0),
            lines=tuple(plain(str(line), MOST_OF_A_LINE) for line in values.get("lines", ())[:MOST_LINES]),
            page=_page(values.get("page", "")),
            verse=plain(str(values.get("verse", "")), MOST_OF_A_VERSE),
            genre=plain(str(values.get("genre", "")), 40),
            changed=iso(str(values.get("changed") or values["began"])),
        )


def date_of(text: str) -> str:
    """The date YYYY-MM-DD that `text` is; raises ValueError where it is none."""
    return datetime.strptime(text[:10] if text.isascii() else "", "%Y-%m-%d").date().isoformat()


def finite(value: Any) -> float | None:
    """A number as it is; None where it is none or endless."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


def iso(when: str) -> str:
    """A time as records write it: UTC, ISO 8601, whole seconds; raises ValueError where it is none."""
    at = datetime.fromisoformat(when)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return at.astimezone(UTC).isoformat(timespec="seconds")


def seconds_of(when: str) -> float:
    """Unix seconds of such a time."""
    return datetime.fromisoformat(when).timestamp()


def newest_first(rows: Iterable[Row]) -> list[Row]:
    """The rows as an index shows them."""
    return sorted(rows, key=lambda row: (row.date, row.began, row.name), reverse=True)


def _page(name: Any) -> str:
    """The name of a verdict's page; "" for anything else, as it becomes a link."""
    return name if isinstance(name, str) and _PAGE.match(name) else ""
