"""The command line of `yanmo tokenizer`: one module per subcommand.

A command group of its own: `yanmo tokenize` is the stage, which makes one tokenizer and a token cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import REQUIRED, opt, values_of, word
from yanmo.options.shared import WHAT, NamedOptions, ToolOptions, channel_opt
from yanmo.tokenize.config import TokenizeConfig
from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand, work_of

_SIZES = values_of(TokenizeConfig)["vocab_size"].bounds


@dataclass(frozen=True, kw_only=True)
class CompareOptions(NamedOptions, group="compare"):
    """Compare tokenizers on your text: tokens, unused ids, jieba's word boundaries.

        yanmo tokenizer compare --store runs/demo --documents demo/balance
        yanmo tokenizer compare --documents demo/curate --candidates jieba,bpe,./Qwen3-0.6B --json

    Each candidate is made from the same text (jieba, bpe), or is a folder with a tokenizer.json, used as
    it is. With which one a model learns best, a run of the pipeline with each says: bits per character are
    the same unit for all of them.
    """

    documents: str = opt(
        REQUIRED, f"{WHAT}, of documents; its train and valid splits are used", metavar="WHAT"
    )
    characters: int = opt(4_000_000, "largest number of characters to learn from", least=1)
    held_out_characters: int = opt(200_000, "largest number of characters to judge by", least=1)
    candidates: str = opt(
        "jieba,bpe",
        "kinds of tokenizer, and folders with a tokenizer.json",
        metavar="A,B",
    )
    sizes: tuple[int, ...] = opt(
        (8192,), "vocabulary sizes to make of each kind", least=_SIZES.least, most=_SIZES.most
    )
    json: bool = opt(False, "print everything as JSON")


@dataclass(frozen=True, kw_only=True)
class AdoptOptions(ToolOptions, group="import"):
    """Import an existing tokenizer, such as Qwen's, instead of building one.

        yanmo tokenizer import ./Qwen3-0.6B --store runs/demo --channel demo
        yanmo tokenize --store runs/demo --channel demo --tokenizer latest

    FOLDER contains a tokenizer.json. Tokens that a training needs and the tokenizer lacks are added
    after its own ids: <|bos|>, <|eos|>, <|pad|>, the marks of a chat and a tag for each genre. A
    tokenizer that does not decode text unchanged (because of a normalizer or a prefix of spaces) is
    refused: it is tried here on a built-in text with every common character, by `yanmo tokenize` on the
    training text.
    """

    folder: str = word("folder with a tokenizer.json, or that file")
    channel: str = channel_opt("channel whose pointer `tokenizer` is moved; 'none' for no channel")
    genres: str = opt("", "further genres that get a tag, besides those of the bundled corpus", metavar="A,B")


TOOL = tool.Tool(
    "tokenizer",
    "Compare tokenizers on your own text, or import one instead of building one.",
    {
        "compare": Subcommand(CompareOptions, work_of("yanmo.tools.tokenizer.compare")),
        "import": Subcommand(AdoptOptions, work_of("yanmo.tools.tokenizer.adopt")),
    },
)

if __name__ == "__main__":
    tool.run(TOOL)
