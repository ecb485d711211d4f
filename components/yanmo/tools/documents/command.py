"""The command line of `yanmo documents`: one module per subcommand."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import opt, word
from yanmo.options.shared import NamedOptions
from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand, work_of

_CURATED = (
    "an output of curate: curate/KEY, KEY, CHANNEL/curate, CHANNEL, latest, run:ID or a file with a reference"
)


@dataclass(frozen=True, kw_only=True)
class ShowOptions(NamedOptions, group="show"):
    """List the documents that curate dropped or changed, with reason, measure and place.

    Read from the output's decisions.parquet. First how many there are for each reason and change,
    then documents, in the order of files.
    """

    what: str = word(_CURATED)
    reason: str = opt("", "only what was dropped for this reason, such as not_han or overlap")
    change: str = opt("", "only what this step changed, such as markup or simplified")
    path: str = opt("", "only files whose path below their source begins like this")
    most: int = opt(20, "documents shown at most", least=0)
    json: bool = opt(False, "for scripts: one JSON document, of the documents alone")


@dataclass(frozen=True, kw_only=True)
class DiffOptions(NamedOptions, group="diff"):
    """Show what curate changed in a document: its text in the source beside the clean one.

    The source is read again, with the options that the output was made with. [-removed-] and
    {+added+} stand where the text differs; what is equal is shortened.
    """

    what: str = word(_CURATED)
    document: str = word("its path below the source and its line, as `show` lists it: notes/a.md:1")
    sources: str = opt("", "the --sources that curate was given")

    def contradictions(self) -> list[str]:
        return [] if self.sources.strip() else ["--sources is missing: expected those that curate was given"]


TOOL = tool.Tool(
    "documents",
    "Show what curate dropped and changed, and why.",
    {
        "show": Subcommand(ShowOptions, work_of("yanmo.tools.documents.show")),
        "diff": Subcommand(DiffOptions, work_of("yanmo.tools.documents.diff")),
    },
)

if __name__ == "__main__":
    tool.run(TOOL)
