"""`yanmo nights ...`: what people hear of a channel's nights."""

from yanmo.tools.nights.command import run

if __name__ == "__main__":
    run()
