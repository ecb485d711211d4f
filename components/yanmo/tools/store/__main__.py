"""`yanmo store ...`: what an operator does with a store. One module per subcommand."""

from yanmo.tools import command_group
from yanmo.tools.store.command import TOOL

if __name__ == "__main__":
    command_group.run(TOOL)
