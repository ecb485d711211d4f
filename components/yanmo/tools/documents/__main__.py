"""`yanmo documents ...`: what curate did to documents. One module per subcommand."""

from yanmo.tools.documents.command import run

if __name__ == "__main__":
    run()
