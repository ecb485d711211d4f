"""Options of the balance stage."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.balance.plan import parse_plan
from yanmo.balance.rules import parse_rules
from yanmo.common.errors import UsageError
from yanmo.common.options import StageOptions, flag, input_ref, opt
from yanmo.common.stage import Stage

MOST_UNITS = 10**15
"""Shares of a total are exact up to here (doubles)."""


@dataclass(frozen=True, kw_only=True)
class BalanceOptions(StageOptions):
    """Decide how much of each class of documents the train split holds; valid passes through."""

    documents: str = input_ref("documents to balance", stages=("curate",), also=("balance",))
    tokenizer: str = input_ref(
        "tokenizer that counts tokens; none estimates them",
        stages=("tokenizer",),
        optional=True,
        default="none",
    )
    quotas: str = opt(
        "alpha=0.7",
        "per class, by commas: amounts (shi=1900000), percent of what there is (ci=200%) or weights "
        "(shi=3w); * is all others; or alpha=0.7 alone: share ~ size^0.7; empty keeps all",
    )
    by: str = opt(
        "genre",
        "what a class is: genre, author, source, license, length, form or a label (dynasty); a+b crosses two",
        form=False,
    )
    unit: str = opt(
        "characters", "what quotas count", form=False, choices=("characters", "documents", "tokens")
    )
    total: int = opt(
        0, "units of all classes, for weights or alpha; 0 takes the least that drops no document", form=False
    )
    length_bounds: str = opt(
        "64,256,1024,4096", "characters at which a new class of --by length begins", form=False
    )
    max_repeats: int = opt(
        4, "times a document may be read per epoch at most; 1 makes every quota an upper limit", form=False
    )
    augment: str = opt(
        "",
        "rules for repeated documents, by commas: genre:rule=probability (wen:synonym=0.1); rules: synonym, "
        "reorder, insert, insert-modern, delete; * is all others; empty repeats them as they are",
        form=False,
    )
    synonyms: str = opt(
        "", "file of equivalents, one group of words per line; empty takes Yanmo's classical ones", form=False
    )
    seed: int = opt(0, "chooses which documents of a class are taken, and what augmentation does", form=False)
    shard_characters: int = opt(20_000_000, "characters per output file, about", form=False)
    preview: int = opt(
        0,
        "print this many originals beside their augmented versions and end; 0 makes the output",
        kind="environment",
        form=False,
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work before anything is read."""
        plan = parse_plan(self.quotas)
        for name, least in (("max_repeats", 1), ("shard_characters", 1), ("total", 0), ("preview", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{flag(name)} is {getattr(self, name)}: expected at least {least}")
        if self.total and not plan.is_relative:
            raise UsageError("--total goes with weights (shi=3w,*=1w) or alpha=X in --quotas")
        if self.total > MOST_UNITS:
            raise UsageError(f"--total is {self.total}: expected at most {MOST_UNITS}")
        if not all(part.strip() for part in self.by.split("+")):
            raise UsageError(f"--by {self.by!r}: expected names of labels, such as genre or genre+dynasty")
        self.bounds()
        rules = parse_rules(self.augment)
        for name in ("preview", "synonyms"):
            if getattr(self, name) and not rules:
                raise UsageError(f"{flag(name)} needs --augment, such as --augment wen:synonym=0.1")

    def bounds(self) -> tuple[int, ...]:
        """`length_bounds` as numbers."""
        try:
            found = tuple(int(part) for part in self.length_bounds.split(","))
        except ValueError:
            found = ()
        if not found or found[0] < 1 or list(found) != sorted(set(found)):
            raise UsageError(
                f"--length-bounds {self.length_bounds!r}: expected rising numbers of characters (64,256)"
            )
        return found


STAGE = Stage(
    name="balance",
    image="data",
    revision=3,
    config=BalanceOptions,
    outputs={"documents": "Dataset"},
)
