"""`yanmo status`: one look at the store, at KFP and at Kubernetes; what cannot be asked is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from yanmo.common.answers import answer
from yanmo.common.command_end import ended
from yanmo.common.errors import ExitCode, advice, exit_code
from yanmo.common.logs import setup
from yanmo.options.command_line import load
from yanmo.options.fields import default_argv
from yanmo.store.opening import default_store, store_of
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import own_namespace
from yanmo_pipelines.cluster.status.of_kfp import runs_of
from yanmo_pipelines.cluster.status.of_kubernetes import jobs_now, pods_now
from yanmo_pipelines.cluster.status.of_store import store_state
from yanmo_pipelines.cluster.status.options import StatusOptions
from yanmo_pipelines.cluster.status.shown import shown
from yanmo_pipelines.cluster.status.state import Status

T = TypeVar("T")


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
    found.store = _ask(
        found,
        "store",
        lambda: store_state(store_of(options, options.store or default_store()), options.channel),
    )
    kubernetes = _ask(found, "kubernetes", lambda: KubernetesApi.of(options))
    found.runs = _ask(found, "kfp", lambda: runs_of(_kfp(options, kubernetes), options.runs, kubernetes))
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
