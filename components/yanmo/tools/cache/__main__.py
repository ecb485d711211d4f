"""`yanmo cache ...`: what a person asks of a token cache. One module per subcommand."""

from yanmo.tools.cache.command import run

if __name__ == "__main__":
    run()
