"""Options of the loss: which logits the output head computes."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import Options, opt


@dataclass(frozen=True)
class FrequentPlan:
    """How many logits are computed."""

    count: int
    """How many tokens are frequent."""
    share: float
    """Share of the positions with frequent targets that compute all logits, above 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class HeadOptions(Options, group="head"):
    """Logits that the head computes in training (docs/explanation/recipe.md)"""

    frequent_tokens: int = opt(
        0,
        "positions whose target is one of so many most frequent tokens compute the logits of these alone, "
        "except a share of them that stands for all: the same gradient on average, for less; 0 computes all "
        "logits everywhere, as a training from --model always does",
        later=True,
    )
    frequent_share: float = opt(
        0.05, "share of these positions that compute all logits", above=0, most=1, later=True
    )

    def contradictions(self) -> list[str]:
        """Return what cannot be together."""
        if self.is_changed("frequent_share") and not self.frequent_tokens:
            return ["--frequent-share has no effect where all logits are computed: give --frequent-tokens"]
        return []
