"""`yanmo runs`: the runs of a store side by side."""

from yanmo.tools.runs.command import run

if __name__ == "__main__":
    run()
