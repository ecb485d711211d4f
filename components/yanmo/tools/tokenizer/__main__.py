"""`yanmo tokenizer ...`: what a person asks of tokenizers. One module per subcommand."""

from yanmo.tools.tokenizer.command import run

if __name__ == "__main__":
    run()
