"""Options of the `tokenize` stage."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import StageOptions, input_ref, opt
from yanmo.stage.declaration import Stage


@dataclass(frozen=True, kw_only=True)
class TokenizeConfig(StageOptions, group="tokenize"):
    """Make a jieba-true tokenizer and a token cache that training maps into memory."""

    documents: str = input_ref("documents to tokenize", stages=("balance", "curate"))
    tokenizer: str = input_ref(
        "tokenizer to use as it is; none makes one from the documents",
        stages=("tokenizer",),
        optional=True,
        default="none",
    )

    vocab_size: int = opt(
        8192,
        "ids of the tokenizer, 68 reserved ones and 256 bytes included; up to 65536 a token costs 2 bytes",
        form=True,
        least=512,
        most=300_000,
        often=True,
    )
    min_character_count: int = opt(
        3, "characters seen less often in the training text are written as bytes", least=1, often=True
    )
    character_share: float = opt(
        0.85, "largest share of the vocabulary for single characters; the rarest become bytes", most=1
    )
    user_dictionary: str = opt(
        "",
        "files or URIs of user dictionaries, separated by commas: lines of `word [frequency] [tag]` as jieba "
        "has them; their words come first",
        kind="environment",
        often=True,
    )
    byte_level: bool = opt(
        False,
        "write tokenizer.json with a ByteLevel step in place of byte_fallback, for tools that know only "
        "this; the ids are the same",
    )
    dictionary_weight: float = opt(
        0.03, "weight of jieba's frequencies beside the text's own when words are chosen"
    )

    compression: str = opt(
        "none",
        "of token files: none is mapped as it lies; zstd is for archives and expanded into the scratch cache",
        choices=("none", "zstd"),
        often=True,
    )

    workers: int = opt(
        0, "processes; 0 is one per CPU where the text is worth it", kind="execution", most=10_000, often=True
    )
    judged: int = opt(
        1024,
        "one document in this many, and the first 16 of each file, are compared with Hugging Face's "
        "tokenizer; 0 compares none",
        kind="execution",
    )
    agreement_sentences: int = opt(
        2000,
        "sentences on which agreement with jieba is measured, spread over the files that are tokenized (125 "
        "or more of each); 0 skips it",
        kind="execution",
    )


STAGE = Stage(
    name="tokenize",
    image="data",
    revision=2,
    config=TokenizeConfig,
    outputs={"token_cache": "Dataset", "tokenizer": "Model"},
)
