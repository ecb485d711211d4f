"""Options of what becomes of a text: its form, what is masked, and which filters drop it."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import Options, opt


@dataclass(frozen=True, kw_only=True)
class TextFormOptions(Options, group="text"):
    """How text is cleaned and written (docs/curate.md)."""

    text_form: str = opt(
        "classical-1",
        "how text is written; only texts of one form are compared",
        choices=("classical-1", "modern-1"),
        often=True,
    )
    steps: str = opt(
        "", "steps of cleaning and normalization added or left out: name,no-name (docs/curate.md)"
    )
    keep_original: bool = opt(
        False, "keep the text before simplification as the label 'original' where it differs"
    )
    mask_personal: str = opt(
        "phone,id,mail", "personal data that is masked: some of phone, id, mail; or none"
    )


@dataclass(frozen=True, kw_only=True)
class FilterOptions(Options, group="filters"):
    """Which documents are dropped for their text, and how many may be."""

    filter_sets: str = opt(
        "*=verse",
        "filters by genre: genre=verse, classical, modern or none, separated by commas; * is the rest",
        often=True,
    )
    filter_limits: str = opt(
        "", "thresholds other than the sets': filter=number or set.filter=number, separated by commas"
    )
    filter_shares: str = opt(
        "",
        "share of documents one filter may drop where not --max-filter-share: filter=share, with commas",
        phase="checks",
    )
    max_filter_share: float = opt(
        0.2,
        "share of documents, in all or in a genre of 100 or more, that one filter may drop",
        most=1,
        phase="checks",
    )
    min_han_characters: int = opt(10, "Han characters a document has at least")
    max_characters: int = opt(1_000_000, "characters a document has at most", least=1)
    min_han_share: float = opt(0.5, "share of Han characters a document has at least", most=1)
    max_lacuna_share: float = opt(0.03, "share of marks for lost characters it has at most", most=1)
    max_private_use_share: float = opt(0.01, "share of private-use characters it has at most", most=1)
