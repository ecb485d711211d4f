"""`yanmo tokenizer ...`: what a person asks of tokenizers. One module per subcommand."""

from yanmo.tools import command_group
from yanmo.tools.tokenizer.command import TOOL

if __name__ == "__main__":
    command_group.run(TOOL)
