"""What a store says: champions and newest outputs by channel, and which work nobody has finished yet.

How a run ended that never said so, KFP or Kubernetes knows: it is entered in the channel's index of nights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from yanmo.common.errors import DataError
from yanmo.nights.index import index_name, index_page, publish, rows_shown
from yanmo.nights.night import BEGUN, DONE, TERMINATED, Row, Words
from yanmo.nights.record import FAILED, RUN, Run, StageEnd, read_record, record_end
from yanmo.store.objects import ObjectStore
from yanmo.store.runs.failure_card import FILE as _FAILURE
from yanmo.store.runs.failure_card import read_card
from yanmo.store.runs.lease import live_holder
from yanmo.store.runs.unfinished import GIVEN_UP, LEFT, read_unfinished, resumed_by, unfinished_name
from yanmo.tools.store.pointed import Named, read_undamaged

_LEASE, _WORK = "LEASE.json", "WORK.json"
_SAID = {
    DONE: Words("It ended well, by KFP or Kubernetes.", "据 KFP 或 Kubernetes，正常结束。"),
    FAILED: Words(
        "It failed, by KFP or Kubernetes; its log says why.", "据 KFP 或 Kubernetes，已失败；原因见其日志。"
    ),
    TERMINATED: Words("It was terminated by hand.", "被人终止。"),
}
"""How somebody else says that a run ended -> in words."""


@dataclass(frozen=True)
class SetAside:
    """A training that several runs could not bring further, or that somebody left."""

    training: str
    state: str
    why: str
    resumed_by: str
    """The field of a run's form that takes it up again."""


@dataclass(frozen=True)
class Channel:
    """A series of runs."""

    name: str
    outputs: dict[str, Named]
    """Pointer -> what it names: champion, train, ..."""
    set_aside: list[SetAside] = field(default_factory=list)
    """Trainings that no run finishes by itself."""
    night: Row | None = None
    """The newest night that the store's pages know of."""
    page: str = ""
    """Where it is shown."""


@dataclass(frozen=True)
class Work:
    """The work on a key that is not committed, or is being made again."""

    stage: str
    key: str
    holder: str
    """The machine that works on it now; "" where nobody does."""
    age: float
    """Seconds since it was last heard of, by the store's clock."""
    failure: tuple[str, ...] = ()
    """The card of its last failure, where there is one."""


@dataclass(frozen=True)
class StoreState:
    """What a store holds."""

    uri: str
    channels: list[Channel]
    work: list[Work]
    damaged: dict[str, str]
    """Pointer -> why it cannot be read."""
    now: float
    """By the store's clock."""


def store_state(store: ObjectStore, channel: str = "") -> StoreState:
    """Return what the store holds, of one channel or of all."""
    prefix = f"pointers/{channel}" if channel else "pointers"
    named, damaged = read_undamaged(store, store.list(prefix))
    channels: dict[str, dict[str, Named]] = {name: {} for name in with_nights(store, channel)}
    for each in named:
        of, _, pointer = each.by.partition("/")
        if each.is_pointer:
            channels.setdefault(of, {})[pointer] = each
    now = store.clock()
    found = [
        Channel(
            name,
            outputs,
            _set_aside(store, name, damaged),
            **_nights(store, name, damaged),
        )
        for name, outputs in sorted(channels.items())
    ]
    return StoreState(
        uri=store.uri,
        channels=found,
        work=sorted(_work(store, now), key=lambda one: one.age),
        damaged=damaged,
        now=now,
    )


def _set_aside(store: ObjectStore, channel: str, damaged: dict[str, str]) -> list[SetAside]:
    """Return what a channel gave up or left; a damaged record is named among what is damaged."""
    try:
        record = read_unfinished(store, channel)
    except DataError as error:
        damaged[unfinished_name(channel)] = str(error)
        return []
    return [
        SetAside(str(one), one.state, one.why, resumed_by(one))
        for one in record.set_aside
        if one.state in (GIVEN_UP, LEFT)
    ]


def with_nights(store: ObjectStore, channel: str) -> list[str]:
    """Channels that have nights; one whose first night failed has no pointer yet."""
    names = {info.name.split("/")[1] for info in store.list(f"nights/{channel}" if channel else "nights")}
    return sorted(name for name in names if store.stat(index_name(name)) is not None)


def enter_ends(store: ObjectStore, channel: str, end_of: Callable[[str], str]) -> None:
    """Enter how runs of the channel, or of all channels, ended that never said so.

    Args:
        end_of: id of a run of KFP's, or uid of a Job -> one of `_SAID`; "" where it goes on, or nobody knows.

    Raises:
        OSError, ValueError, RuntimeError: as `end_of` does; the store refuses a write, a record is damaged.
    """
    for each in with_nights(store, channel):
        for row in (row for row in rows_shown(store, each) if row.state == BEGUN):
            record = read_record(store, each, row.run_id)
            if record and record.state == BEGUN:  # else the index alone is behind
                if not (state := end_of(row.run_id)):
                    continue
                run = Run(
                    store=store,
                    channel=each,
                    run_id=row.run_id,
                    timezone=record.timezone,
                    last=record.last,
                )
                record = record_end(run, StageEnd(task=RUN, state=state, sentence=_SAID[state]))
            if record:
                publish(store, record)


def _nights(store: ObjectStore, channel: str, damaged: dict[str, str]) -> dict[str, Any]:
    """The newest night, as fields of `Channel`."""
    try:
        night = next(iter(rows_shown(store, channel)), None)
    except DataError as error:
        damaged[index_name(channel)] = str(error)
        return {}
    return {"night": night, "page": f"{store.uri}/{index_page(channel)}" if night else ""}


def _work(store: ObjectStore, now: float) -> Iterator[Work]:
    """Keys that are worked on, or were saved and left."""
    seen: dict[tuple[str, str], dict[str, float]] = {}
    for info in store.list("runs"):
        parts = info.name.split("/")
        if len(parts) == 4 and parts[3] in (_LEASE, _WORK, _FAILURE):
            seen.setdefault((parts[1], parts[2]), {})[parts[3]] = info.modified
    for (stage, key), files in seen.items():
        holder = _holder(store, f"runs/{stage}/{key}/{_LEASE}", now - files.get(_LEASE, 0.0))
        is_left = _WORK in files or _FAILURE in files
        if holder or (is_left and store.stat(f"cas/{stage}/{key}/MANIFEST.json") is None):
            card = read_card(store, stage, key) if _FAILURE in files else None
            failure = (f"at {card.made_at}: {card.first_line}", *card.lines()[1:]) if card else ()
            yield Work(stage, key, holder, now - max(files.values()), failure)


def _holder(store: ObjectStore, name: str, age: float) -> str:
    """Return who holds a lease; "" where nobody does."""
    try:
        return live_holder(name, store.read(name)[0], age)
    except (FileNotFoundError, DataError):
        return ""
