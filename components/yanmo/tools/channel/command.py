"""The command line of `yanmo channel`: what holds for every run of a channel."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NoReturn

from yanmo.common.errors import DataError, ExitCode, UsageError
from yanmo.common.logs import plural
from yanmo.common.user import user
from yanmo.options.fields import opt, word
from yanmo.options.shared import ToolOptions, channel_opt
from yanmo.options.values import brief
from yanmo.store.channel.licenses import names_in, read_states, set_allowed
from yanmo.store.channel.takedown import lift, read_takedowns, take_down
from yanmo.store.objects import ObjectStore
from yanmo.store.output import SHORTEST_KEY
from yanmo.store.runs.unfinished import LEFT, Unfinished, change_unfinished, read_unfinished
from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand
from yanmo.tools.store.find import print_json

ALL = "all"
"""Value of --set that allows every licence."""
_TAKEN_DOWN = (
    "the next run of curate leaves them and their copies out; yanmo store lineage says which models learned "
    "them and what to run"
)
_LIFTED = (
    "the next run of curate reads them again where the sources still have them; what is made from its "
    "documents is made again, or found where the store has it from before. No champion changes by this: one "
    "that was replaced for these texts comes back by yanmo promote rollback --to NUMBER (yanmo promote "
    "history has the numbers), a training that was set aside for them by train_unfinished=train/KEY"
)


@dataclass(frozen=True, kw_only=True)
class LicensesOptions(ToolOptions, group="licenses"):
    """Show or change the licences whose texts a channel may learn from.

    Without a list every licence is allowed. With one, curate leaves other texts out, train refuses
    a token cache that holds one, and promote serves no model that learned one.
    """

    channel: str = channel_opt("channel whose list is shown or changed")
    set: str = opt(
        "",
        "the new list, with commas: MIT,CC-BY-SA-4.0; unknown stands for texts without a licence, all alone "
        "for every licence",
    )
    why: str = opt("", "the reason, kept with the list; needed with --set")
    who: str = opt("", "kept with the list; default: user@host")
    json: bool = opt(False, "for scripts: one JSON document")

    def contradictions(self) -> list[str]:
        if self.set.strip() and not self.why.strip():
            return ["--set needs --why: say for later readers why the list is changed"]
        return []


@dataclass(frozen=True, kw_only=True)
class TakedownOptions(ToolOptions, group="takedown"):
    """Take texts down: no later run of the channel reads them; without ids, show the list.

    `yanmo store lineage ID` says what holds a text, which models learned it, and what to run so that
    the next champion has not. With --lift a text comes off the list again, and who, when and why stays.
    """

    ids: tuple[str, ...] = word("ids of documents, 64 digits of 0-9a-f each", ())
    channel: str = channel_opt("channel that takes them down")
    lift: bool = opt(False, "take them off the list again: later runs may read them")
    why: str = opt("", "the reason, kept with the list; needed with ids")
    who: str = opt("", "kept with the list; default: user@host")
    json: bool = opt(False, "for scripts: one JSON document")

    def contradictions(self) -> list[str]:
        wrong = [
            f"{brief(one)}: expected an id of 64 digits of 0-9a-f, as `yanmo store lineage` takes it"
            for one in self.ids
            if not re.fullmatch(r"[0-9a-f]{64}", one)
        ]
        if self.ids and not self.why.strip():
            what = "come off the list" if self.lift else "are taken down"
            wrong.append(f"--why is missing: say for later readers why these texts {what}")
        if self.lift and not self.ids:
            wrong.append("--lift: which? Give the ids; yanmo channel takedown alone shows the list")
        return wrong


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


def licenses(store: ObjectStore, options: LicensesOptions) -> int:
    channel = options.channel
    if options.set.strip():
        try:
            names = () if options.set.strip() == ALL else names_in(options.set)
        except ValueError as error:
            raise UsageError(f"--set: {error}") from error
        set_allowed(store, channel, names, who=options.who or user(), why=options.why.strip())
    states = read_states(store, channel)
    if options.json:
        print_json({"channel": channel, "states": [asdict(one) for one in states]})
        return ExitCode.DONE
    now = states[-1].shown if states else ""
    print(f"channel {channel} of {store.uri} allows {now or 'every licence'}")
    for one in states:
        print(f"  {one.when}  {one.shown or 'every licence'}  by {one.who or 'a run'}: {one.why}")
    return ExitCode.DONE


def takedown(store: ObjectStore, options: TakedownOptions) -> int:
    channel, number = options.channel, len(set(options.ids))
    signed = {"who": options.who.strip() or user(), "why": options.why.strip()}
    said = ""
    if options.lift:
        gone = lift(store, channel, options.ids, **signed)
        said = f"{len(gone)} of {number} came off the takedown list of channel {channel}\n{_LIFTED}"
    elif options.ids:
        added = take_down(store, channel, options.ids, **signed)
        said = f"{len(added)} of {number} are new on the takedown list of channel {channel}\n{_TAKEN_DOWN}"
    found = read_takedowns(store, channel)
    if options.json:
        texts, lifted = ([asdict(one) for one in some] for some in (found.entries, found.lifted))
        print_json({"channel": channel, "texts": texts, "lifted": lifted})
        return ExitCode.DONE
    print(
        said
        or f"{plural(len(found.entries), 'text')} on the takedown list of channel {channel} of {store.uri}"
    )
    if not said:
        for one in found.entries:
            print(f"  {one.id}  {one.when}  by {one.who}: {one.why}")
        for each in found.lifted:
            print(f"  lifted: {each.takedown.id}  {each.when}  by {each.who}: {each.why}")
            print(f"    it was taken down {each.takedown.when} by {each.takedown.who}: {each.takedown.why}")
    return ExitCode.DONE


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
    "What holds for every run of a channel: what it allows, took down, and has not finished.",
    {
        "licenses": Subcommand(LicensesOptions, licenses),
        "takedown": Subcommand(TakedownOptions, takedown),
        "unfinished": Subcommand(UnfinishedOptions, unfinished),
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the process's exit code."""
    return tool.main(TOOL, argv)


def run() -> NoReturn:
    """`main` as a process."""
    tool.run(TOOL)
