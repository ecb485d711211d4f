"""How much of a text may be malformed or dropped, by which reason, before a run ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.logs import human_bytes
from yanmo.common.words import plural, some_of
from yanmo.curate.config import CurateOptions
from yanmo.curate.map_report import MapReport
from yanmo.curate.sources.parsing import PLAIN
from yanmo.curate.text.filter_sets import REASONS
from yanmo.curate.text.plugin_filters import PREFIX

log = logging.getLogger(__name__)

PLAN_REASONS = (
    "duplicate",
    "near_duplicate",
    "excluded",
    "license",
    "evaluation_set",
    "overlap",
    "benchmark",
)
"""Why a document that passed the filters is not in train: it has the same Han characters as another one, or
nearly the same; its id is excluded; its licence is not allowed; it, a near duplicate or its
author is held out; it shares a run of characters with the evaluation set, or with a benchmark."""


_SHOWN_REASONS = 5
_FEW_DOCUMENTS = 100
"""A genre with fewer documents may lose more than the allowed share to a filter."""


def check_malformed(report: MapReport, options: CurateOptions) -> None:
    """Raise `DataError` if there are no lines, or too many malformed ones; say what was read and skipped."""
    first = _first_malformed(report)
    if not report.lines:
        raise DataError(
            "--sources: the files hold no documents; expected text, or records with the field of --text-field"
            + (f": {some_of(report.empty)}" if report.empty else "")
        )
    if report.malformed > options.max_malformed_share * report.lines:
        raise DataError(
            f"{report.malformed} of {report.lines} lines are malformed, more than the allowed share "
            f"{options.max_malformed_share:g}; mend them, or allow more by --max-malformed-share; the first: "
            f"{first}"
        )
    if report.unread > options.max_malformed_share * report.bytes:  # a line may be most of a file
        raise DataError(
            f"{human_bytes(report.unread)} of {human_bytes(report.bytes)} cannot be read, more than the "
            f"allowed share {options.max_malformed_share:g}; mend them (fetch a file again that breaks off), "
            f"or allow more by --max-malformed-share; the first: {first}"
        )
    for encoding in sorted(report.files.keys() - {"utf-8", "parquet"}):
        log.info("%d of %d file(s) are in %s", report.files[encoding], report.files.total(), encoding)
    if report.empty:
        names = some_of(report.empty)
        log.warning("%s without a document, left out: %s", plural(len(report.empty), "file"), names)
    if report.chats:
        shown = ", ".join(f"{layout} {number:,}" for layout, number in report.chats.most_common())
        log.info("chats by the fields they were read from: %s", shown)
    if report.plain:
        log.info(
            "%s without a genre, of genre %r now; `;genre=NAME` after the place or "
            "--default-genre gives another",
            plural(report.plain, "document"),
            PLAIN,
        )
    if report.malformed:
        log.warning("skipped %s of %d: %s", plural(report.malformed, "malformed line"), report.lines, first)


def _first_malformed(report: MapReport) -> str:
    """Return the first place of each reason, and what to do about a genre that is nowhere."""
    places = {malformed.why: malformed for malformed in reversed(report.first_malformed)}
    text = "; ".join(str(place) for place in list(reversed(places.values()))[:_SHOWN_REASONS])
    if any("--default-genre" in why for why in places):
        text += (
            "; give it after the place (--sources 'FOLDER;genre=shi') or as --default-genre shi (in a "
            "pipeline: curate.default_genre=shi)"
        )
    return text


_OPTIONS = {
    "not_han": "--min-han-share",
    "too_short": "--min-han-characters",
    "too_long": "--max-characters",
    "overlap": "--overlap-share",
    "benchmark": "--overlap-share",
}
"""Reason -> the option that says which documents it drops; --filter-limits for the other filters."""


def check_filters(report: MapReport, options: CurateOptions) -> None:
    """Raise `DataError` if a filter dropped more than its allowed share."""
    filters = [reason for reason in reasons_in(report) if reason not in PLAN_REASONS]
    for reason in filters:
        own = "--plugin-filters" if reason.startswith(PREFIX) else f"--filter-limits {reason}="
        limit = _OPTIONS.get(reason, own)
        allowed, dry = options.max_filter_share, options.dry_run
        check_share(report, reason, allowed, "--max-filter-share ", limit, among=filters, is_dry_run=dry)


def check_share(
    report: MapReport,
    reason: str,
    allowed: float,
    option: str,
    limit: str = "",
    *,
    among: Sequence[str] = (),
    is_dry_run: bool = False,
) -> None:
    """Raise `DataError` if `reason` dropped more than its allowed share, with examples of what is above it.

    Args:
        option: what allows more, up to the figure.
        limit: the option that decides which documents are dropped.
        among: all reasons that `option` is about: its figure allows what each of them dropped of each genre.
    """
    for genre in genres_above(report, reason, allowed):
        shares = _shares(report, reason, genre)
        (documents, read), (characters, whole) = shares
        enough, number = _enough(report, among or [reason], allowed)
        examples = [e for e in report.tally.examples[reason] if genre in (None, e["genre"])][:3]
        raise DataError(
            f"{reason} takes {documents:,} of {read:,} documents and {characters:,} of {whole:,} characters"
            f"{f' of genre {genre}' if genre else ''}, more than the allowed share {allowed:g}: "
            f"{'; '.join(map(_shown, examples))}. To drop fewer, {limit or _OPTIONS[reason]}; to allow so "
            f"many, {option}{enough:g}"
            + (f" (which also allows the other {plural(number - 1, 'such share')})" if number > 1 else "")
            + ("" if is_dry_run else "; to see what is dropped, --dry-run")
        )


def _enough(report: MapReport, reasons: Sequence[str], allowed: float) -> tuple[float, int]:
    """The least share, in hundredths, that none of the reasons goes over; and how many go over `allowed`."""
    above = sum(len(genres_above(report, reason, allowed)) for reason in reasons)
    # by the comparison itself: 29 of 100 are more than 0.29 * 100 in floating point
    hundredths = (n / 100 for n in range(100))
    is_enough = (s for s in hundredths if not any(genres_above(report, r, s) for r in reasons))
    return next(is_enough, 1.0), above


def _shares(report: MapReport, reason: str, genre: str | None) -> list[tuple[int, int]]:
    """Return how many documents of a genre `reason` dropped, and of how many; the same of characters."""
    tally = report.tally
    return [(count(reason, genre), count("read", genre)) for count in (tally.documents, tally.characters)]


def _shown(example: dict[str, Any]) -> str:
    """Return an example: where it is, what was measured, and how it begins."""
    measured = [str(example[name]) for name in ("value", "note") if name in example]
    shown = f" ({', '.join(measured)})" if measured else ""
    return f"{example['path']}{shown} {example['text'][:30]!r}"


def reasons_in(report: MapReport) -> list[str]:
    """Return the reasons for which documents were dropped, in the order of checking."""
    counts = report.tally.counts
    added = sorted(name for name in counts if name.startswith(PREFIX))
    return [r for r in (*REASONS, *added, *PLAN_REASONS) if r in counts]


def genres_above(report: MapReport, reason: str, allowed: float) -> list[str | None]:
    """Return the genres (None is all) of whose documents or characters `reason` dropped more than allowed."""
    tally = report.tally
    return [
        genre
        for genre in (None, *tally.genres(reason))
        if any(dropped > allowed * read for dropped, read in _shares(report, reason, genre))
        and not (genre and tally.documents("read", genre) < _FEW_DOCUMENTS)
    ]


def summary(report: MapReport) -> str:
    """Return lines read, malformed and dropped, in a few words."""
    names = reasons_in(report)
    dropped = ", ".join(f"{name} {report.tally.documents(name)}" for name in names)
    return f"of {report.lines} read, malformed {report.malformed}, dropped: {dropped or 'none'}"
