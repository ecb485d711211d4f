"""`yanmo documents ...`: what curate did to documents. One module per subcommand."""

from yanmo.tools import command_group
from yanmo.tools.documents.command import TOOL

if __name__ == "__main__":
    command_group.run(TOOL)
