"""`yanmo launch reap`: delete trainings that nobody waits for any more; a CronJob of manifests/ runs it.

A run of KFP's that is terminated ends its launcher without a word (KFP's own launcher passes no signal on),
and its Workflow stays for an hour. So whoever it launched has to be looked for: a training is deleted where
each of its owners has ended. Where an owner is gone, Kubernetes' own garbage collection deletes it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yanmo.common.command_end import ended
from yanmo.common.errors import ExitCode
from yanmo.common.logs import setup
from yanmo.options.command_line import load
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import PlaceOptions
from yanmo_pipelines.cluster.pods import how_job_ended
from yanmo_pipelines.cluster.refusals import NotFound
from yanmo_pipelines.launch_options import LAUNCHED, TRAINER, VERSION

log = logging.getLogger(__name__)
_KINDS = {"TrainJob": ("trainjobs", f"apis/{TRAINER}/{VERSION}"), "Job": ("jobs", "apis/batch/v1")}
_ENDED = ("Succeeded", "Failed", "Error")


@dataclass(frozen=True, kw_only=True)
class ReapOptions(PlaceOptions, group="reap"):
    """Delete trainings on several nodes whose runs have ended, cancelled ones above all.

    A training without an owner, as `yanmo launch` in a shell makes it, is left alone.
    """


def reap(argv: Sequence[str]) -> int:
    """Look once; returns the exit code."""

    def serve() -> int:
        options = load(ReapOptions, argv, "yanmo launch reap")
        setup(options.log_level, "reap", options.log_format)
        api = KubernetesApi.of(options)
        for kind, (plural, group) in _KINDS.items():
            _reap_kind(api, kind, api.in_namespace(plural, group=group))
        return ExitCode.DONE

    return ended("reap", serve)


def _reap_kind(api: KubernetesApi, kind: str, path: str) -> None:
    try:
        found = list(api.listed(path, f"list {kind}s", labelSelector=LAUNCHED))
    except NotFound:  # no Trainer in this cluster
        return
    for each in found:
        name = each["metadata"]["name"]
        if _is_left(api, each["metadata"]):
            with contextlib.suppress(NotFound):
                api.delete(f"{path}/{name}", f"delete {kind} {name}")
                log.info("%s %s: its run has ended; deleted", kind, name)


def _is_left(api: KubernetesApi, meta: Mapping[str, Any]) -> bool:
    owners = meta.get("ownerReferences") or []
    if not owners or meta.get("deletionTimestamp"):
        return False
    return all(_has_ended(api, owner) for owner in owners)


def _has_ended(api: KubernetesApi, owner: Mapping[str, Any]) -> bool:
    """Return whether a run or a Job has ended or is gone, so that nobody waits for what it launched."""
    kind = f"{str(owner['kind']).lower()}s"
    version = str(owner["apiVersion"])
    group = f"apis/{version}" if "/" in version else f"api/{version}"
    asked = f"read {owner['kind']} {owner['name']}"
    try:
        found = api.get(api.in_namespace(kind, str(owner["name"]), group=group), asked)
    except NotFound:
        return True
    return (found.get("status") or {}).get("phase") in _ENDED or (
        owner["kind"] == "Job" and bool(how_job_ended(found)[0])
    )
