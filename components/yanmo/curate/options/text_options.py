"""Options of what becomes of a text: its form, what is masked, and which filters drop it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo.options.fields import Options, Scalar, opt

BUNDLES: Mapping[str, Mapping[str, Scalar]] = {
    "modern-1": {"min_han_share": 0.1, "near_duplicate_similarity": 0.8, "overlap_share": 0.05}
}
"""Text form -> options that it stands for. Program code, Latin names and figures are part of modern text: of
the sections of this project's own Chinese documents, 72 % are less than half Han characters."""


@dataclass(frozen=True, kw_only=True)
class TextFormOptions(Options, group="text"):
    """How text is cleaned and normalized (docs/how-to/prepare-text.md)."""

    text_form: str = opt(
        "classical-1",
        "form that text is normalized to: classical-1 for classical Chinese, modern-1 for modern "
        "text, with Latin, digits and code; results on different forms cannot be compared",
        choices=("classical-1", "modern-1"),
        often=True,
        auto="that of the channel's evaluation set, else the one that the sources' first texts call for",
    )
    steps: str = opt(
        "",
        "steps of cleaning and normalization to add (NAME) or leave out (no-NAME), separated by "
        "commas (docs/how-to/prepare-text.md)",
    )
    mask_personal: str = opt(
        "phone,id,mail",
        "kinds of personal data to mask: phone, id, mail, separated by commas; none masks nothing",
    )

    @classmethod
    def bundles(cls, values: dict[str, Any]) -> Mapping[str, Scalar]:
        """Return the options that a text form stands for."""
        return BUNDLES.get(str(values["text_form"]), {})


@dataclass(frozen=True, kw_only=True)
class FilterOptions(Options, group="filters"):
    """Which documents are dropped for their text, and how many may be dropped."""

    filter_sets: str = opt(
        "*=verse",
        "set of filters for each genre: GENRE=verse, classical, modern or none, separated by commas; "
        "* is every other genre",
        often=True,
    )
    filter_limits: str = opt(
        "",
        "thresholds that replace those of the sets: FILTER=NUMBER or SET.FILTER=NUMBER, separated by commas",
    )
    plugin_filters: str = opt(
        "",
        "filters of installed packages, with what a text that stays has at most or at least: NAME<=NUMBER or "
        "NAME>=NUMBER, separated by commas (docs/how-to/extend.md)",
        kind="execution",  # with its package's version it is in the key, where it is given
    )
    max_filter_share: float = opt(
        0.2,
        "largest share of documents, and of characters, that one filter may drop, of all and of every genre "
        "with 100 documents or more; above it the run fails",
        most=1,
        phase="checks",
    )
    min_han_characters: int = opt(
        10, "least number of Han characters in a document; shorter documents are dropped"
    )
    max_characters: int = opt(
        1_000_000, "largest number of characters in a document; longer documents are dropped", least=1
    )
    min_han_share: float = opt(
        0.5, "least share of Han characters in a document", most=1, auto="0.1 for modern-1, else {default}"
    )
