"""Options of the balance stage."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.balance.augmentation.rules import parse_rules
from yanmo.balance.metrics import METRICS
from yanmo.balance.quotas.targets import parse_plan
from yanmo.options.fields import input_ref, opt
from yanmo.options.shared import EngineOptions, StageOptions
from yanmo.options.values import MOST_EXACT, brief
from yanmo.stage.declaration import Stage


@dataclass(frozen=True, kw_only=True)
class BalanceOptions(EngineOptions, StageOptions, group="balance"):
    """Set how much of each class of documents the train split holds; valid stays as it is."""

    documents: str = input_ref("documents to balance", stages=("curate",), also=("balance",))
    tokenizer: str = input_ref(
        "tokenizer that counts tokens; with none they are estimated",
        stages=("tokenizer",),
        optional=True,
        default="none",
    )
    quotas: str = opt(
        "size^0.7",
        "size of each class, separated by commas: an amount (shi=1900000), a percentage of what there "
        "is (ci=200%) or a weight (shi=3w); * is every other class; or size^0.7 alone: shares "
        "proportional to that power of a class's size; *=100% keeps all documents",
        form="data_quotas",
        often=True,
    )
    by: str = opt(
        "genre",
        "what a class is: genre, author, source, license or a label such as dynasty; a+b crosses two",
        often=True,
    )
    unit: str = opt(
        "characters",
        "what quotas count",
        choices=("characters", "documents", "tokens"),
        often=True,
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
    workers: int = opt(
        0,
        "processes; 0: one for each CPU that this one may use, where there is enough text for it",
        kind="execution",
        most=10_000,
        often=True,
    )

    def contradictions(self) -> list[str]:
        """Options that contradict each other."""
        parse_plan(self.quotas)
        rules = parse_rules(self.augment)
        parts = [part.strip() for part in self.by.split("+")]
        if not all(parts) or len(parts) > len({*parts}):
            return [f"--by {brief(self.by)}: expected names of labels, each once: genre, or genre+dynasty"]
        if self.synonyms and not rules:
            return ["--synonyms needs --augment, such as --augment wen:synonym=0.1"]
        return []


STAGE = Stage(
    name="balance",
    image="data",
    revision=7,  # 7: characters are counted without U+3000 and tabs, as curate does
    config=BalanceOptions,
    outputs={"documents": "Dataset"},
    metrics=METRICS,
)
