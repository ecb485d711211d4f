"""`yanmo channel ...`: what a channel allows and what it took down."""

from yanmo.tools.channel.command import run

if __name__ == "__main__":
    run()
