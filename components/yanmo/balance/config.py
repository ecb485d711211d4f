"""Options of the balance stage."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.balance.augmentation.rules import parse_rules
from yanmo.balance.metrics import METRICS
from yanmo.balance.quotas.targets import parse_plan
from yanmo.common.errors import UsageError
from yanmo.options.fields import flag, input_ref, opt
from yanmo.options.shared import StageOptions
from yanmo.options.values import MOST_EXACT, Bounds, Values, WrongValue, brief
from yanmo.stage.declaration import Stage


@dataclass(frozen=True, kw_only=True)
class BalanceOptions(StageOptions, group="balance"):
    """Set how much of each class of documents the train split holds; valid stays as it is."""

    documents: str = input_ref("documents to balance", stages=("curate",), also=("balance",))
    tokenizer: str = input_ref(
        "tokenizer that counts tokens; with none they are estimated",
        stages=("tokenizer",),
        optional=True,
        default="none",
    )
    quotas: str = opt(
        "alpha=0.7",
        "size of each class, separated by commas: an amount (shi=1900000), a percentage of what there "
        "is (ci=200%) or a weight (shi=3w); * is every other class; or alpha=0.7 alone: shares "
        "proportional to size^0.7; *=100% keeps all documents",
        form="data_quotas",
        often=True,
    )
    by: str = opt(
        "genre",
        "what a class is: genre, author, source, license, length, form or a label such as dynasty; "
        "a+b crosses two",
        often=True,
    )
    unit: str = opt(
        "characters",
        "what quotas and --total count",
        choices=("characters", "documents", "tokens"),
        often=True,
    )
    total: int = opt(
        0,
        "size of all classes together, for weights and alpha; 0 takes the smallest that drops no document",
        most=MOST_EXACT,
    )
    length_bounds: str = opt(
        "64,256,1024,4096", "lengths, in characters, at which the next class of --by length begins"
    )
    max_repeats: int = opt(
        4,
        "how often a document may be read per epoch at most; with 1 every quota is an upper limit",
        least=1,
        often=True,
    )
    augment: str = opt(
        "",
        "rules that vary repeated documents: GENRE:RULE=PROBABILITY, separated by commas "
        "(wen:synonym=0.1); rules: synonym, reorder, insert, insert-modern, delete; * is every other "
        "genre; empty repeats documents as they are",
        often=True,
    )
    synonyms: str = opt(
        "",
        "file of synonyms, one group of words per line; empty takes the built-in list for the form of text",
    )
    seed: int = opt(
        0,
        "seed of the choice of documents within a class, and of augmentation",
        most=MOST_EXACT,
        often=True,
    )
    shard_characters: int = opt(20_000_000, "approximate size of an output file, characters", least=1)
    preview: int = opt(
        0,
        "print this many originals next to their augmented versions and stop; 0 makes the output",
        kind="environment",
    )

    def contradictions(self) -> list[str]:
        """Options that contradict each other."""
        plan, rules = parse_plan(self.quotas), parse_rules(self.augment)
        self.bounds()  # raises by itself
        if self.total and not plan.is_relative:
            return ["--total needs weights (shi=3w,*=1w) or alpha=X in --quotas"]
        parts = [part.strip() for part in self.by.split("+")]
        if not all(parts) or len(parts) > len({*parts}):
            return [f"--by {brief(self.by)}: expected names of labels, each once: genre, or genre+dynasty"]
        return [
            f"{flag(name)} needs --augment, such as --augment wen:synonym=0.1"
            for name in ("preview", "synonyms")
            if getattr(self, name) and not rules
        ]

    def bounds(self) -> tuple[int, ...]:
        """`length_bounds` as numbers."""
        found: tuple[int, ...]
        try:
            found = Values(type=int, several=True, bounds=Bounds(least=1)).read(self.length_bounds)
        except WrongValue:
            found = ()
        if not found or list(found) != sorted(set(found)):
            raise UsageError(
                f"--length-bounds {brief(self.length_bounds)}: expected rising numbers of characters (64,256)"
            )
        return found


STAGE = Stage(
    name="balance",
    image="data",
    revision=6,
    config=BalanceOptions,
    outputs={"documents": "Dataset"},
    metrics=METRICS,
)
