"""Named sets of filters and their thresholds, chosen per genre.

    verse       what is wrong in any genre: markup left, too short, few Han characters, lost characters,
                garbled ...
    classical   the same, and FineWeb-2's filters with its values for literary Chinese (lzh_Hani)
    modern      the same, and FineWeb-2's filters with its values for Mandarin (cmn_Hani), and boilerplate
    none        drops only empty texts

The web filters measure stop words, line ends and repetition. They must never be applied to verse, whose lines
are short, unpunctuated and repeated on purpose.

Values: huggingface/fineweb-2 at d0defb2, configs/lzh_Hani.yml and configs/cmn_Hani.yml (as of 2025-06-16,
"paper version"; arXiv 2506.20920), applied as in its fineweb-2-pipeline.py: GopherRepetitionFilter without
paragraphs, FineWebQualityFilter with short_line_thr off and char_duplicates_ratio 0.1, GopherQualityFilter
with two stop words and datatrove's defaults. Not taken over: the language score (GlotLID needs a model).

In `modern` words are those of jieba, as in datatrove. In `classical` every character is a word; datatrove
uses Stanza, whose words of literary Chinese are a little longer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from yanmo.options.values import number_in

SETS = ("verse", "classical", "modern", "none")

CLASSICAL_STOP_WORDS = tuple("之年以為其也國不人於大者有一而曰王中子日月軍三帝所至事學自二與時州")
MODERN_STOP_WORDS = tuple("的年在月是和日了於·為有被人中为他與後也而由")

MAXIMUM, MINIMUM = 1, -1

FILTERS: dict[str, tuple[int, str]] = {
    "markup": (MAXIMUM, "tags or entities left after cleaning"),
    "stub": (MAXIMUM, "remarks such as (table omitted)"),
    "garbled": (MAXIMUM, "text read in a wrong encoding that could not be repaired"),
    "not_han": (MINIMUM, "share of Han characters"),
    "too_short": (MINIMUM, "Han characters"),
    "private_use": (MAXIMUM, "share of private-use characters"),
    "lacuna": (MAXIMUM, "share of marks for lost characters"),
    "too_long": (MAXIMUM, "characters"),
    "boilerplate": (MAXIMUM, "share of characters in lines of boilerplate"),
    "repeated_lines": (MAXIMUM, "share of lines that occurred before"),
    "top_2_grams": (MAXIMUM, "characters of the commonest pair of words, by the text's characters"),
    "top_3_grams": (MAXIMUM, "the same of three words"),
    "top_4_grams": (MAXIMUM, "the same of four words"),
    "repeated_5_grams": (MAXIMUM, "share of characters in runs of five words that occurred before"),
    "repeated_6_grams": (MAXIMUM, "the same of six words"),
    "repeated_7_grams": (MAXIMUM, "the same of seven words"),
    "repeated_8_grams": (MAXIMUM, "the same of eight words"),
    "repeated_9_grams": (MAXIMUM, "the same of nine words"),
    "repeated_10_grams": (MAXIMUM, "the same of ten words"),
    "line_ends": (MINIMUM, "share of lines that end in a full stop, question or exclamation mark"),
    "repeated_line_characters": (MAXIMUM, "share of characters in lines that occurred before"),
    "line_breaks": (MAXIMUM, "line breaks by words"),
    "few_words": (MINIMUM, "words that are not punctuation"),
    "many_words": (MAXIMUM, "words that are not punctuation"),
    "short_words": (MINIMUM, "characters of a word on average"),
    "long_words": (MAXIMUM, "characters of a word on average"),
    "hashes": (MAXIMUM, "number signs by words"),
    "ellipses": (MAXIMUM, "ellipses by words"),
    "bullets": (MAXIMUM, "share of lines that begin with a bullet"),
    "ellipsis_lines": (MAXIMUM, "share of lines that end in an ellipsis"),
    "letters": (MINIMUM, "share of words with a letter or Han character"),
    "stop_words": (MINIMUM, "different stop words"),
}
"""Filter -> whether its threshold is a maximum or a minimum, and what it measures. If several would drop a
document, the first one here is counted."""

REASONS = tuple(FILTERS)
"""Why a filter drops a document."""

_GOPHER = {
    "few_words": 50, "many_words": 100_000, "hashes": 0.1, "ellipses": 0.1, "bullets": 0.9,
    "ellipsis_lines": 0.3, "stop_words": 2, "repeated_line_characters": 0.1,
}  # fmt: skip
WEB: dict[str, dict[str, float]] = {
    "classical": {
        **_GOPHER,
        "repeated_lines": 0.261, "line_ends": 0.167, "line_breaks": 0.14, "letters": 0.826,
        "top_2_grams": 1.588, "top_3_grams": 1.774, "top_4_grams": 1.802,
        "repeated_5_grams": 0.19, "repeated_6_grams": 0.181, "repeated_7_grams": 0.169,
        "repeated_8_grams": 0.16, "repeated_9_grams": 0.145, "repeated_10_grams": 0.137,
        "short_words": 1, "long_words": 2,
    },
    "modern": {
        **_GOPHER,
        "repeated_lines": 0.287, "line_ends": 0.106, "line_breaks": 0.178, "letters": 0.735,
        "top_2_grams": 0.256, "top_3_grams": 0.201, "top_4_grams": 0.171,
        "repeated_5_grams": 0.198, "repeated_6_grams": 0.182, "repeated_7_grams": 0.167,
        "repeated_8_grams": 0.154, "repeated_9_grams": 0.14, "repeated_10_grams": 0.127,
        "short_words": 1, "long_words": 5,
        "boilerplate": 0.3,
    },
}  # fmt: skip
"""Published thresholds (module docstring); `boilerplate` is our own."""

Limits = Mapping[str, float]
"""Filter -> threshold, for one set."""


def limits_of(basic: Limits, changes: str) -> dict[str, dict[str, float]]:
    """Set -> filter -> threshold.

    Args:
        basic: thresholds of the filters that every set but `none` has.
        changes: `filter=threshold` for every set that has the filter, or `set.filter=threshold`, separated by
            commas.

    Raises:
        ValueError: an unknown set or filter, or a threshold that is no number.
    """
    result = {name: {**basic, **WEB.get(name, {})} for name in SETS[:3]}
    result["none"] = {"too_short": 0}
    for entry in filter(None, re.split(r"[,\s]+", changes)):
        where, _, value = entry.partition("=")
        chosen, _, name = where.rpartition(".")
        sets = [chosen] if chosen else [s for s in result if name in result[s]]
        if name not in FILTERS or not sets or not set(sets) <= result.keys():
            raise ValueError(
                f"{entry!r}: expected filter=number or set.filter=number, filters: {', '.join(FILTERS)}"
            )
        threshold = number_in(value)
        if threshold is None or not math.isfinite(threshold):
            raise ValueError(f"{entry!r}: expected a number after '='")
        for each in sets:
            result[each][name] = threshold
    return result


def read_pairs(text: str, what: str) -> dict[str, str]:
    """Name -> value, from `name=value` pairs separated by commas.

    Args:
        what: the form of an entry, for the message.

    Raises:
        ValueError: an entry is no such pair.
    """
    result = {}
    for entry in filter(None, (e.strip() for e in text.split(","))):
        name, equals, value = entry.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ValueError(f"{entry!r}: expected {what}")
        result[name.strip()] = value.strip()
    return result
