"""`yanmo store ...`: what an operator does with a store. One module per subcommand."""

from yanmo.tools.store.command import run

if __name__ == "__main__":
    run()
