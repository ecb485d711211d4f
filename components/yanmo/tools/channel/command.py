"""The command line of `yanmo channel`: what a channel has begun and not finished."""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import asdict, dataclass

from yanmo.common.errors import DataError, ExitCode
from yanmo.common.user import user
from yanmo.options.fields import opt
from yanmo.options.shared import ToolOptions, channel_opt
from yanmo.options.values import brief
from yanmo.store.objects import ObjectStore
from yanmo.store.output import SHORTEST_KEY
from yanmo.store.runs.unfinished import LEFT, Unfinished, change_unfinished, read_unfinished
from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand
from yanmo.tools.store.find import print_json


@dataclass(frozen=True, kw_only=True)
class UnfinishedOptions(ToolOptions, group="unfinished"):
    """Show the trainings that a channel has begun and not judged; take one up again, or leave it.

    A training that makes no progress in several runs is given up, and one may be left by a word on a
    run's form. Once the cause is mended, --resume lets the channel's next run finish it first, from
    its last checkpoint, with the data and options that it began with; its tries count from none.
    """

    channel: str = channel_opt("channel whose trainings are shown")
    resume: str = opt(
        "", "training that the next run finishes first, its tries forgotten", metavar="train/KEY"
    )
    leave: str = opt("", "training that no run finishes by itself any more", metavar="train/KEY")
    who: str = opt("", "kept with one that is left; default: user@host")
    json: bool = opt(False, "for scripts: one JSON document")

    def contradictions(self) -> list[str]:
        wrong = [
            f"--{name} {brief(value)}: expected train/KEY; the first {SHORTEST_KEY} digits are enough"
            for name, value in (("resume", self.resume), ("leave", self.leave))
            if value and not re.fullmatch(rf"train/[0-9a-f]{{{SHORTEST_KEY},64}}", value)
        ]
        return [*wrong, "--resume and --leave: expected one of them"] if self.resume and self.leave else wrong


def unfinished(store: ObjectStore, options: UnfinishedOptions) -> int:
    channel, name = options.channel, options.resume or options.leave

    def change(record: Unfinished) -> Unfinished:
        found = record.named(name)
        if found is None:
            raise DataError(
                f"{name}: expected a training that channel {channel!r} of {store.uri} has begun and not "
                f"judged; there are: {record}"
            )
        if options.leave:
            return record.with_(found.aside(LEFT, f"left by {options.who or user()}"))
        return record.with_(dataclasses.replace(found.resumed(), tries=()), first=True)

    record = change_unfinished(store, channel, change) if name else read_unfinished(store, channel)
    trainings = record.trainings
    if options.json:
        print_json({"channel": channel, "trainings": [asdict(one) for one in trainings]})
        return ExitCode.DONE
    if not trainings:
        print(f"channel {channel} of {store.uri} has begun no training that was not judged")
    for one in trainings:
        print(f"{one.state:<8}  {one}")
        if not one.is_open:
            print(f"{'':<8}  {one.why}")
    first = next((one for one in trainings if one.is_open), None)
    if first is not None:
        print(f"the next run of channel {channel} finishes {first.name} first")
    return ExitCode.DONE


TOOL = tool.Tool(
    "channel",
    "What a channel has begun and not finished.",
    {
        "unfinished": Subcommand(UnfinishedOptions, unfinished),
    },
)
main = functools.partial(tool.main, TOOL)
"""Run one subcommand and return the process's exit code."""
