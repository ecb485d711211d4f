"""Options of the `tokenize` stage."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import input_ref, opt
from yanmo.options.shared import EngineOptions, StageOptions
from yanmo.stage.declaration import Stage
from yanmo.tokenize.metrics import METRICS


@dataclass(frozen=True, kw_only=True)
class TokenizeConfig(EngineOptions, StageOptions, group="tokenize"):
    """Make a tokenizer that segments as jieba does, and a token cache that training maps into memory."""

    documents: str = input_ref("documents to tokenize", stages=("balance", "curate"))
    tokenizer: str = input_ref(
        "tokenizer to use as it is; with none, one is made from the documents",
        stages=("tokenizer",),
        optional=True,
        default="none",
    )

    vocab_size: int = opt(
        8192,
        "size of the vocabulary, with 68 reserved ids and 256 bytes; up to 65536 a token takes 2 "
        "bytes in the cache, above that 4",
        form="model_vocabulary",
        least=512,
        most=300_000,
        often=True,
    )
    min_character_count: int = opt(
        3,
        "least number of times a character is in the training text; rarer characters are written as bytes",
        least=1,
        often=True,
    )
    user_dictionary: str = opt(
        "",
        "user dictionaries, files or URIs separated by commas; lines are `word [frequency] [tag]` as "
        "in jieba; their words enter the vocabulary first",
        kind="environment",
        often=True,
    )
    dictionary_weight: float = opt(
        0.03, "weight of jieba's word frequencies, relative to those of the text, when words are chosen"
    )

    workers: int = opt(
        0,
        "processes; 0: one for each CPU that this one may use, where there is enough text for it",
        kind="execution",
        most=10_000,
        often=True,
    )
    agreement_sentences: int = opt(
        2000,
        "sentences on which agreement with jieba is measured, spread over the files that are "
        "tokenized (125 or more from each); 0 measures nothing",
        kind="execution",
    )


STAGE = Stage(
    name="tokenize",
    image="data",
    revision=3,
    config=TokenizeConfig,
    outputs={"token_cache": "Dataset"},
    metrics=METRICS,
)
