"""Options of the balance stage."""

from __future__ import annotations

import re
from dataclasses import dataclass

from yanmo.common.errors import UsageError
from yanmo.common.options import StageOptions, input_ref, opt
from yanmo.common.stage import Stage

_QUOTA = re.compile(r"([^=,\s]+)=(?:([0-9]+)|([0-9]+(?:\.[0-9]+)?)%)\Z")
OTHERS = "*"


@dataclass(frozen=True)
class Quota:
    """How much of a genre train shall hold: characters, or a percentage of what there is."""

    value: float
    is_percent: bool

    def characters(self, available: int) -> int:
        """The quota in characters, where the genre has `available` of them."""
        return round(available * self.value / 100) if self.is_percent else int(self.value)

    def __str__(self) -> str:
        return f"{self.value:g}%" if self.is_percent else f"{int(self.value)}"


def parse_quotas(text: str) -> dict[str, Quota]:
    """Genre (as written) -> quota, from `shi=1900000,ci=200%,*=50%`.

    Raises:
        UsageError: an entry that is no quota, or a genre named twice.
    """
    quotas: dict[str, Quota] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        found = _QUOTA.match(entry)
        if not found:
            raise UsageError(
                f"--quotas: expected genre=characters or genre=percent%, found {entry!r} "
                "(for instance shi=1900000,ci=200%,*=100%)"
            )
        genre, characters, percent = found.groups()
        if genre in quotas:
            raise UsageError(f"--quotas: {genre} is named twice")
        quotas[genre] = Quota(float(percent or characters), percent is not None)
    return quotas


@dataclass(frozen=True, kw_only=True)
class BalanceOptions(StageOptions):
    """Give each genre of the train split its quota of characters; valid passes through."""

    documents: str = input_ref("documents to balance", stages=("curate",))
    quotas: str = opt(
        "",
        "quota per genre, separated by commas: characters (shi=1900000) or percent of what there is "
        "(ci=200%); * stands for all others; empty keeps all",
    )
    max_repeats: int = opt(4, "times one document may stand in the output at most", form=False)
    seed: int = opt(0, "chooses which documents of a genre are taken", form=False)
    shard_characters: int = opt(20_000_000, "characters per output file, about", form=False)

    def __post_init__(self) -> None:
        """Refuse what cannot work before anything is read."""
        parse_quotas(self.quotas)
        for name in ("max_repeats", "shard_characters"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} is {getattr(self, name)}: expected at least 1")


STAGE = Stage(
    name="balance",
    image="data",
    revision=1,
    config=BalanceOptions,
    outputs={"documents": "Dataset"},
)
