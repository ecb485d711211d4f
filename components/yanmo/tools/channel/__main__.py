"""`yanmo channel ...`: what a channel allows, what it took down, and which trainings it has not finished."""

from yanmo.tools import command_group
from yanmo.tools.channel.command import TOOL

if __name__ == "__main__":
    command_group.run(TOOL)
