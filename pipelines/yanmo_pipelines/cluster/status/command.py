"""`yanmo status`: one look at the store, at KFP and at Kubernetes; what cannot be asked is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from yanmo.common.answers import answer
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import ExitCode, advice, exit_code
from yanmo.common.logs import human_seconds, setup
from yanmo.common.names import STAGES
from yanmo.nights.night import DONE, TERMINATED
from yanmo.nights.record import FAILED
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv, opt
from yanmo.options.shared import StoreOptions
from yanmo.store.opening import default_store, store_of
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import PlaceOptions
from yanmo_pipelines.cluster.status.of_cluster import (
    Job,
    Pod,
    Run,
    jobs_now,
    pods_now,
    runs_of,
    state_of_run,
    states_of_jobs,
)
from yanmo_pipelines.cluster.status.of_store import Channel, StoreState, enter_ends, store_state

T = TypeVar("T")
_FIRST = ("champion", *STAGES)
"""Pointers that are shown, in this order; `--json` has all."""
_MOST_OF_A_SENTENCE = 300
_ENDS = {
    **{"SUCCEEDED": DONE, "SKIPPED": DONE, "CANCELED": TERMINATED, "TERMINATED": TERMINATED},
    **{"FAILED": FAILED, "complete": DONE, "failed": FAILED},
}
"""How KFP calls the end of a run, or `Job.state` that of a Job -> how a night's record does."""


@dataclass(frozen=True, kw_only=True)
class StatusOptions(PlaceOptions, StoreOptions, group="status"):
    """Show channels, champions and newest outputs, what runs where, what waits and why, what failed last.

    It asks the store, KFP and Kubernetes, each only where it is known, and says which it could not ask. Exit
    code: 0 where any of them answered, else that of the first.
    """

    store: str = opt(
        "",
        "store that is looked at: a folder or s3://bucket/prefix; default: what a mounted Secret says",
        often=True,
        variable="YANMO_STORE",
    )
    channel: str = opt("", "only this channel of the store", often=True)
    runs: int = opt(10, "so many of KFP's newest runs, and of Jobs that ended", most=100, often=True)
    json: bool = opt(False, "print one JSON object", often=True)


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


def main(argv: Sequence[str] | None = None) -> int:
    """Show the state of things; returns the exit code."""

    def look() -> int:
        options = load(StatusOptions, default_argv(argv), "yanmo status")
        setup(options.log_level, "status", options.log_format)
        found = _status(options)
        values = {name: value for name, value in asdict(found).items() if name != "codes"}
        as_json = json.dumps(values, ensure_ascii=False, indent=1)
        answer(as_json if options.json else "\n".join(_lines(found)))
        nothing = found.store is None and found.runs is None and found.pods is None
        return found.codes[0] if nothing else ExitCode.DONE

    return ended("status", look)


def _status(options: StatusOptions) -> Status:
    found = Status()
    store = _ask(found, "store", lambda: store_of(options, options.store or default_store()))
    kubernetes = _ask(found, "kubernetes", lambda: KubernetesApi.of(options))
    kfp = _ask(found, "kfp", lambda: KfpApi(options, kubernetes))
    if kfp:
        found.runs = _ask(found, "kfp", lambda: runs_of(kfp, options.runs, kubernetes))
    if kubernetes:
        found.pods = _ask(found, "pods", lambda: pods_now(kubernetes))
        found.jobs = _ask(found, "jobs", lambda: jobs_now(kubernetes, options.runs))
    if store:
        end_of = _ends(found, kfp, kubernetes)
        _ask(found, "ends of runs", lambda: enter_ends(store, options.channel, end_of))
        found.store = _ask(found, "store", lambda: store_state(store, options.channel))
    return found


def _ends(found: Status, kfp: KfpApi | None, kubernetes: KubernetesApi | None) -> Callable[[str], str]:
    """Return how a run ended, as a night's record says it; one that is not shown is asked for by its id."""
    states = {run.id: run.state for run in found.runs or ()}
    states |= {job.uid: job.state for job in found.jobs or ()}
    asks_kfp = kfp if found.runs is not None else None
    asks_jobs = kubernetes if found.jobs is not None else None
    jobs: dict[str, str] | None = None

    def end_of(run_id: str) -> str:
        nonlocal jobs
        if run_id not in states:
            states[run_id] = state_of_run(asks_kfp, run_id) if asks_kfp else ""
            if not states[run_id] and asks_jobs:
                jobs = states_of_jobs(asks_jobs) if jobs is None else jobs
                states[run_id] = jobs.get(run_id, "")
        return _ENDS.get(states[run_id], "")

    return end_of


def _ask(found: Status, whom: str, ask: Callable[[], T]) -> T | None:
    """The answer; None where there is none, and then why."""
    try:
        return ask()
    except (OSError, ValueError, RuntimeError) as error:
        code = exit_code(error)
        if code == ExitCode.BUG:
            raise
        found.unasked[whom] = advice(error)
        found.codes.append(int(code))
        return None


def _lines(found: Status) -> Iterator[str]:
    """All of it, as a person reads it."""
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
    if night := channel.night:
        took = f", {human_seconds(night.seconds)}" if night.seconds else ""
        yield f"  night      {night.date}  {night.state}{took}"
        yield f"             {night.sentence.en[:_MOST_OF_A_SENTENCE]}"
        yield f"             {channel.page}"
    for each in channel.set_aside:
        yield f"  {each.state:<10} {each.training}: {each.why}"
        yield f"             to take it up again: {each.resumed_by} on a run's form"


def _ago(when: str) -> str:
    try:
        then = datetime.fromisoformat(when.replace("Z", "+00:00"))
    except ValueError:
        return "?"
    return f"{human_seconds(max((datetime.now(UTC) - then).total_seconds(), 0))} ago"


if __name__ == "__main__":
    as_process(main)
