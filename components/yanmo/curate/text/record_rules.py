"""The rules for one record, from the stage's options."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from yanmo.common.errors import UsageError
from yanmo.common.words import did_you_mean
from yanmo.curate.config import CurateOptions
from yanmo.curate.options.source_options import chat_pair
from yanmo.curate.sources.batches import MAX_RECORD_BYTES, Reading
from yanmo.curate.sources.entries import Fields
from yanmo.curate.sources.parsing import genre_name
from yanmo.curate.text.cleaning import CLEANINGS, DEFAULT_CLEANINGS, Cleaning
from yanmo.curate.text.filter_sets import SETS, limits_of, read_pairs
from yanmo.curate.text.filters import FilterRules
from yanmo.curate.text.normalize import CLASSICAL, form_steps
from yanmo.curate.text.plugin_filters import plugin_filters
from yanmo.curate.text.privacy import KINDS

_RECORD_BYTES_PER_CHARACTER = 12
"""Bytes of the longest spelling of a character in JSON: two escapes of six bytes."""


@dataclass(frozen=True, kw_only=True)
class RecordRules:
    """Everything that decides what becomes of a record: how it is read, cleaned, normalized, filtered."""

    fields: Fields
    rules: FilterRules
    reading: Reading = field(default_factory=Reading)
    cleaning: Cleaning = field(default_factory=Cleaning)
    form: str = "classical-1"
    steps: frozenset[str] = CLASSICAL


def record_rules(options: CurateOptions) -> RecordRules:
    """Return the rules for one record, from the stage's options.

    Raises:
        UsageError: an option has a value that cannot be; names the option and what was expected.
    """
    form, steps, cleanings = _steps(options)
    personal = tuple(name for name in KINDS if name in _words(options.mask_personal))
    return RecordRules(
        fields=_fields(options),
        rules=_rules(options),
        reading=Reading(
            encoding=options.encoding,
            layout=options.text_layout,
            chat_fields=chat_pair(options.chat_fields),
            max_record_bytes=max_record_bytes(options.max_characters),
        ),
        cleaning=Cleaning(
            steps=cleanings, personal=personal, squares="lacuna" in steps, code="code" in steps
        ),
        form=form,
        steps=steps,
    )


def max_record_bytes(max_characters: int) -> int:
    """Return bytes that a record may have: enough for `max_characters` in JSON's longest spelling.

    At least 8 MiB, as markup that is taken out does not count as characters; at most MAX_RECORD_BYTES.
    """
    return min(max(_RECORD_BYTES_PER_CHARACTER * max_characters, 8 << 20), MAX_RECORD_BYTES)


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[,\s]+", text) if word]


def _steps(options: CurateOptions) -> tuple[str, frozenset[str], frozenset[str]]:
    """Return the name of the text form, its steps, and the steps of cleaning."""
    cleanings, others = set(DEFAULT_CLEANINGS), []
    for word in _words(options.steps):
        if word in CLEANINGS:
            cleanings.add(word)
        elif word.removeprefix("no-") in CLEANINGS:
            cleanings.discard(word.removeprefix("no-"))
        else:
            others.append(word)
    try:
        name, steps = form_steps(options.text_form, ",".join(others))
    except ValueError as error:
        raise UsageError(f"--steps: {error}; or {', '.join(CLEANINGS)}, or no- and one") from error
    return name, steps, frozenset(cleanings)


def _fields(options: CurateOptions) -> Fields:
    return Fields(
        text=options.text_field,
        genre=options.genre_field,
        labels=tuple(name.strip() for name in options.label_fields.split(",") if name.strip()),
        default_genre=options.default_genre,
        chat_fields=chat_pair(options.chat_fields),
        max_characters=options.max_characters,
    )


def _rules(options: CurateOptions) -> FilterRules:
    basic = {
        "markup": 0.0,
        "stub": 0.0,
        "garbled": 0.0,
        "too_short": options.min_han_characters,
        "not_han": options.min_han_share,
        "private_use": 0.01,
        "lacuna": 0.03,
        "too_long": options.max_characters,
    }
    try:
        limits = limits_of(basic, options.filter_limits)
    except ValueError as error:
        raise UsageError(f"--filter-limits: {error}") from error
    try:
        sets = {genre_name(g): s for g, s in read_pairs(options.filter_sets, "genre=set").items()}
    except ValueError as error:
        raise UsageError(f"--filter-sets: {error}") from error
    unknown = sorted(set(sets.values()) - set(SETS))
    if unknown:
        hint = did_you_mean(unknown[0], SETS)
        raise UsageError(
            f"--filter-sets: unknown set {unknown[0]!r}: expected one of {', '.join(SETS)}{hint}"
        )
    return FilterRules(limits=limits, sets=sets, plugins=plugin_filters(options.plugin_filters))


def check_record_rules(options: CurateOptions) -> None:
    """Check the options for records, before any file is read.

    Raises:
        UsageError: an option has a value that cannot be; names the option and what was expected.
    """
    record_rules(options)
    for word in _words(options.mask_personal):
        if word not in (*KINDS, "none"):
            hint = did_you_mean(word, KINDS)
            raise UsageError(f"--mask-personal: {word!r}: expected some of {', '.join(KINDS)}, or none{hint}")
