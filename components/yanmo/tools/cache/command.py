"""The command line of `yanmo cache`: one module per subcommand."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.formats.packing_settings import LONGEST_CONTEXT, MODES, SPLITS
from yanmo.options.fields import opt, word
from yanmo.options.shared import NamedOptions
from yanmo.options.values import MOST_EXACT
from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand, work_of

CACHE = (
    "a token cache: tokenize/KEY, KEY, CHANNEL/tokenize, CHANNEL, latest, run:ID or a file with a reference"
)


@dataclass(frozen=True, kw_only=True)
class CacheShowOptions(NamedOptions, group="show"):
    """Show what a cache holds by split and genre, or one of its documents as text.

    Options and inputs, documents and tokens by split and genre, digests. Without --document
    only the manifests are read.
    """

    what: str = word(CACHE)
    document: str = opt(
        "",
        "show this document: its number (0, 1, ...; -1 is the last) or the beginning of its id",
        metavar="N|ID",
    )
    ids: bool = opt(False, "show every token of the document")
    json: bool = opt(False, "for scripts: one JSON document")


@dataclass(frozen=True, kw_only=True)
class PlanOptions(NamedOptions, group="plan"):
    """Compute rows, padding and cut documents for any packing settings.

    Every packing is combined with every context. Nothing is written or tokenized again; give the settings
    that you choose to `yanmo train`.
    """

    what: str = word(CACHE)
    context: tuple[int, ...] = opt(
        (512, 1024, 2048), "context lengths, tokens", least=2, most=LONGEST_CONTEXT
    )
    packing: tuple[str, ...] = opt(MODES, "ways of packing", choices=MODES)
    tag_share: float = opt(0.5, "as for `yanmo train`", most=1)
    split: str = opt("train", "split whose documents are used", choices=SPLITS)
    seed: int = opt(0, "seed of the order of the data", most=MOST_EXACT)
    json: bool = opt(False, "for scripts: one JSON document")


TOOL = tool.Tool(
    "cache",
    "Show a token cache, and plan a training's rows from it.",
    {
        "show": Subcommand(CacheShowOptions, work_of("yanmo.tools.cache.show")),
        "plan": Subcommand(PlanOptions, work_of("yanmo.tools.cache.plan")),
    },
)

if __name__ == "__main__":
    tool.run(TOOL)
