"""`yanmo status`: one look at the store, at KFP and at Kubernetes; what cannot be asked is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from yanmo.common.answers import answer
from yanmo.common.command_end import as_process, ended
from yanmo.common.errors import ExitCode, advice, exit_code
from yanmo.common.logs import setup
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv, opt
from yanmo.options.shared import StoreOptions
from yanmo.store.opening import default_store, store_of
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import PlaceOptions, own_namespace
from yanmo_pipelines.cluster.status.of_kfp import runs_of
from yanmo_pipelines.cluster.status.of_kubernetes import jobs_now, pods_now
from yanmo_pipelines.cluster.status.of_runs import settle_runs
from yanmo_pipelines.cluster.status.of_store import store_state
from yanmo_pipelines.cluster.status.shown import Status, shown

T = TypeVar("T")


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


def main(argv: Sequence[str] | None = None) -> int:
    """Show the state of things; returns the exit code."""

    def look() -> int:
        options = load(StatusOptions, default_argv(argv), "yanmo status")
        setup(options.log_level, "status", options.log_format)
        found = _status(options)
        answer(_as_json(found) if options.json else shown(found))
        nothing = found.store is None and found.runs is None and found.pods is None
        return found.codes[0] if nothing else ExitCode.DONE

    return ended("status", look)


def _status(options: StatusOptions) -> Status:
    found = Status()
    store = _ask(found, "store", lambda: store_of(options, options.store or default_store()))
    kubernetes = _ask(found, "kubernetes", lambda: KubernetesApi.of(options))
    kfp = _ask(found, "kfp", lambda: _kfp(options, kubernetes))
    if kfp:
        found.runs = _ask(found, "kfp", lambda: runs_of(kfp, options.runs, kubernetes))
    if store:
        if found.runs is not None or kubernetes:
            known = kfp if found.runs is not None else None
            _ask(found, "ends of runs", lambda: settle_runs(store, options.channel, known, kubernetes))
        found.store = _ask(found, "store", lambda: store_state(store, options.channel))
    if kubernetes:
        found.pods = _ask(found, "pods", lambda: pods_now(kubernetes))
        found.jobs = _ask(found, "jobs", lambda: jobs_now(kubernetes, options.runs))
    return found


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


def _kfp(options: StatusOptions, kubernetes: KubernetesApi | None) -> KfpApi:
    namespace = kubernetes.namespace if kubernetes else options.namespace or own_namespace()
    return KfpApi.of(options, namespace)


def _as_json(found: Status) -> str:
    values: dict[str, Any] = asdict(found)
    values.pop("codes")
    return json.dumps(values, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    as_process(main)
