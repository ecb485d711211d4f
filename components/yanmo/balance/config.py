"""Options of the balance stage."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from yanmo.balance.augment_rules import parse_rules
from yanmo.balance.quotas import parse_plan
from yanmo.common.errors import UsageError
from yanmo.options.fields import StageOptions, flag, input_ref, opt
from yanmo.options.values import MOST_EXACT, arguments, brief
from yanmo.stage.declaration import Stage


@dataclass(frozen=True, kw_only=True)
class BalanceOptions(StageOptions, group="balance"):
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
        form=True,
        often=True,
    )
    by: str = opt(
        "genre",
        "what a class is: genre, author, source, license, length, form or a label (dynasty); a+b crosses two",
        often=True,
    )
    unit: str = opt(
        "characters", "what quotas count", choices=("characters", "documents", "tokens"), often=True
    )
    total: int = opt(
        0,
        "units of all classes, for weights or alpha; 0 takes the least that drops no document",
        most=MOST_EXACT,
    )
    length_bounds: str = opt("64,256,1024,4096", "characters at which a new class of --by length begins")
    max_repeats: int = opt(
        4,
        "times a document may be read per epoch at most; 1 makes every quota an upper limit",
        least=1,
        often=True,
    )
    augment: str = opt(
        "",
        "rules for repeated documents, by commas: genre:rule=probability (wen:synonym=0.1); rules: synonym, "
        "reorder, insert, insert-modern, delete; * is all others; empty repeats them as they are",
        often=True,
    )
    synonyms: str = opt(
        "", "file of equivalents, one group of words per line; empty takes Yanmo's classical ones"
    )
    seed: int = opt(
        0,
        "chooses which documents of a class are taken, and what augmentation does",
        most=MOST_EXACT,
        often=True,
    )
    shard_characters: int = opt(20_000_000, "characters per output file, about", least=1)
    preview: int = opt(
        0,
        "print this many originals beside their augmented versions and end; 0 makes the output",
        kind="environment",
    )

    def contradictions(self) -> list[str]:
        """What cannot be together, before anything is read."""
        plan, rules = parse_plan(self.quotas), parse_rules(self.augment)
        self.bounds()  # raises by itself
        if self.total and not plan.is_relative:
            return ["--total goes with weights (shi=3w,*=1w) or alpha=X in --quotas"]
        if not all(part.strip() for part in self.by.split("+")):
            return [f"--by {self.by!r}: expected names of labels, such as genre or genre+dynasty"]
        return [
            f"{flag(name)} needs --augment, such as --augment wen:synonym=0.1"
            for name in ("preview", "synonyms")
            if getattr(self, name) and not rules
        ]

    def bounds(self) -> tuple[int, ...]:
        """`length_bounds` as numbers."""
        try:
            found = tuple(arguments(int, least=1)(self.length_bounds))
        except argparse.ArgumentTypeError:
            found = ()
        if not found or list(found) != sorted(set(found)):
            raise UsageError(
                f"--length-bounds {brief(self.length_bounds)}: expected rising numbers of characters (64,256)"
            )
        return found


STAGE = Stage(
    name="balance",
    image="data",
    revision=3,
    config=BalanceOptions,
    outputs={"documents": "Dataset"},
)
