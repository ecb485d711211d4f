"""`yanmo channel ...`: what a channel allows, what it took down, and which trainings it has not finished."""

from yanmo.tools.channel.command import run

if __name__ == "__main__":
    run()
