"""The state of things as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from yanmo.common.logs import human_seconds
from yanmo.common.names import STAGES
from yanmo.nights.night import Row
from yanmo_pipelines.cluster.status.of_kfp import Run
from yanmo_pipelines.cluster.status.of_kubernetes import Job, Pod
from yanmo_pipelines.cluster.status.of_store import Channel, StoreState

_FIRST = ("champion", *STAGES)
"""Pointers that are shown, in this order; `--json` has all."""

_MOST_OF_A_SENTENCE = 300


@dataclass
class Status:
    """Each part is None where it could not be asked."""

    store: StoreState | None = None
    runs: list[Run] | None = None
    pods: list[Pod] | None = None
    jobs: list[Job] | None = None
    unasked: dict[str, str] = field(default_factory=dict)
    """store, kfp or kubernetes -> why it could not be asked."""
    codes: list[int] = field(default_factory=list)
    """Exit codes of these."""


def shown(found: Status) -> str:
    """All of it, in lines."""
    return "\n".join(_lines(found))


def _lines(found: Status) -> Iterator[str]:
    if found.store:
        yield from _store(found.store)
    if found.runs is not None:
        yield "runs of KFP" if found.runs else "no run in KFP"
        for run in found.runs:
            yield f"  {run.state:<10} {_ago(run.created):>14}  {run.id}  {run.name}"
            if run.at:
                yield f"  {'':<10} {run.at}"
    if found.jobs:
        yield "Jobs"
        for job in found.jobs:
            why = f"  {job.why}" if job.why else ""
            yield f"  {job.state:<10} {_ago(job.created):>14}  {job.name} ({job.stage}){why}"
            yield from (f"  {'':<10} {line}" for line in job.said)
    if found.pods is not None:
        yield "pods" if found.pods else "no pod runs or waits"
        for pod in found.pods:
            where = f"on {pod.where}" if pod.state != "waits" else pod.where
            yield f"  {pod.state:<10} {_ago(pod.since):>14}  {pod.task}  {where}  {pod.name}"
    for whom, why in found.unasked.items():
        yield f"not asked: {whom}: {why}"


def _store(state: StoreState) -> Iterator[str]:
    yield f"store {state.uri}"
    if not state.channels:
        yield "  no channel yet"
    for channel in state.channels:
        yield from _channel(channel, state.now)
    for work in state.work:
        left = "last heard of" if work.failure else "last saved"
        by = f"held by {work.holder}, renewed" if work.holder else f"nobody works on it; {left}"
        yield f"  unfinished {work.stage}/{work.key[:12]}  {by} {human_seconds(max(work.age, 0))} ago"
        yield from (f"    {line}" for line in work.failure)
    for name, why in state.damaged.items():
        yield f"  damaged {name}: {why}"


def _channel(channel: Channel, now: float) -> Iterator[str]:
    yield f"channel {channel.name}"
    if "champion" not in channel.outputs:
        yield "  champion   none yet"
    for name in _FIRST:
        if name in channel.outputs:
            named = channel.outputs[name]
            what = f"{named.reference.stage}/{named.reference.key[:12]}"
            yield f"  {name:<10} {what}  {human_seconds(max(now - named.modified, 0))} ago"
    if channel.night:
        yield f"  night      {channel.night.date}  {channel.night.state}{_took(channel.night)}"
        yield f"             {channel.night.sentence.en[:_MOST_OF_A_SENTENCE]}"
        yield f"             {channel.page}"
    for each in channel.set_aside:
        yield f"  {each.state:<10} {each.training}: {each.why}"
        yield f"             to take it up again: {each.resumed_by} on a run's form"


def _took(night: Row) -> str:
    """Return how long a night's processes worked, where it is known."""
    return f", {human_seconds(night.seconds)}" if night.seconds else ""


def _ago(when: str) -> str:
    try:
        then = datetime.fromisoformat(when.replace("Z", "+00:00"))
    except ValueError:
        return "?"
    return f"{human_seconds(max((datetime.now(UTC) - then).total_seconds(), 0))} ago"
