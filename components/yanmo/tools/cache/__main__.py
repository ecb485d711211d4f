"""`yanmo cache ...`: what a person asks of a token cache. One module per subcommand."""

from yanmo.tools import command_group
from yanmo.tools.cache.command import TOOL

if __name__ == "__main__":
    command_group.run(TOOL)
