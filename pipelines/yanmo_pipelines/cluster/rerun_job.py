"""The Job of a rerun: as `kubectl create job --from=cronjob/stage-STAGE` makes it, but its environment."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.shell_words import quoted


def job_of(cron_job: Mapping[str, Any], name: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """The Job called `name` from a stage's CronJob, its containers' environment changed.

    Its owner is the CronJob, as kubectl does it, and not so that it would hold up the CronJob's deletion, for
    which another right is needed.

    Raises:
        DataError: the CronJob is no template of a stage.
    """
    meta = cron_job["metadata"]
    template = copy.deepcopy((cron_job.get("spec") or {}).get("jobTemplate") or {})
    containers = template.get("spec", {}).get("template", {}).get("spec", {}).get("containers") or []
    if not containers:
        raise DataError(
            f"CronJob {meta['name']}: it has no container; apply manifests/ again (kubectl apply -k)"
        )
    containers[0]["env"] = _with(containers[0].get("env") or [], variables)
    of_template = template.get("metadata") or {}
    annotations = {**(of_template.get("annotations") or {}), "cronjob.kubernetes.io/instantiate": "manual"}
    owner = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": meta["name"],
        "uid": meta.get("uid", ""),
        "controller": True,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": meta.get("namespace", ""),
            "labels": of_template.get("labels") or {},
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }


def _with(env: list[dict[str, Any]], variables: Mapping[str, str]) -> list[dict[str, Any]]:
    """The environment with other values; each variable stays before those that name it."""
    found = [
        {"name": one["name"], "value": variables[one["name"]]} if one["name"] in variables else one
        for one in env
    ]
    known = {one["name"] for one in env}
    new = [{"name": name, "value": value} for name, value in variables.items() if name not in known]
    return [*new, *found]


def by_kubectl(stage: str, namespace: str, name: str, variables: Mapping[str, str]) -> str:
    """The same by kubectl alone."""
    begin = f"kubectl -n {namespace} create job {name} --from=cronjob/stage-{stage}"
    if not variables:
        return begin
    given = " ".join(f"{key}={quoted(value)}" for key, value in variables.items())
    return (
        f"{begin} --dry-run=client -o yaml \\\n"
        f"  | kubectl set env --local -f - {given} -o yaml \\\n"
        f"  | kubectl -n {namespace} create -f -"
    )
