"""What the installation of KFP and Argo is set to: what it retries, its time zone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from yanmo_pipelines.cluster.checks.finding import Asked, Finding
from yanmo_pipelines.cluster.place import KFP_NAMESPACE
from yanmo_pipelines.cluster.refusals import NotFound

_CONTROLLER = "workflow-controller-configmap"
_TWO_LINES = (
    f"in ConfigMap {_CONTROLLER}, below workflowDefaults, spec, templateDefaults:\n"
    "retryStrategy:\n"
    '  limit: "0"\n'
    "  retryPolicy: Always"
)
"""The limit is that of what has none of its own: drivers, and the layers of KFP's graph. Where it is 2, Argo
tries each layer around a failed pod again, and the pod's own tries with it: a wrong value ran 8 times in 12
minutes and was not red yet (KFP 2.17.0)."""
_SAID = {
    "OnError": (
        "a pod that was deleted without notice comes back; one that was evicted or drained not always, one "
        "that failed or ran out of memory never: submit the same again, finished stages are kept"
    ),
    "OnFailure": (
        "a failed pod comes back; one that was deleted without notice does not, one that was evicted or "
        "drained not always: submit the same again"
    ),
    "OnTransientError": "only what Argo calls transient comes back, and neither failed nor deleted pods",
    "Always": "failed and deleted pods come back",
}
"""Argo's retry policy -> what it does to the pods of a run. A pod that is evicted gets SIGTERM and ends with
143 before it is gone: it failed, if Argo 4.0.5 sees that in time. Else it is an error, `pod deleted`."""


def retries(asked: Asked) -> Iterator[Finding]:
    """Yield which endings of a pod this installation tries again."""
    space = _kfps(asked)
    data = asked.kubernetes.get(
        f"/api/v1/namespaces/{space}/configmaps/{_CONTROLLER}", f"read ConfigMap {_CONTROLLER}"
    ).get("data", {})
    defaults = _read(data.get("workflowDefaults", ""))
    strategy = defaults.get("spec", {}).get("templateDefaults", {}).get("retryStrategy", {})
    policy = strategy.get("retryPolicy", "OnFailure")
    origin = "Argo's own default" if "retryPolicy" not in strategy else "workflowDefaults"
    said = f"{policy} ({origin}): {_SAID.get(policy, 'a policy that Yanmo does not know')}"
    if policy in ("Always", "OnFailure") and str(strategy.get("limit", "0")) != "0":
        layers = (
            "; its limit is also that of each layer of a run's graph, so that a failure is tried many times"
        )
        yield Finding("retries", "bad", said + layers, f"let the layers alone, {_TWO_LINES}")
    elif policy == "Always":
        yield Finding("retries", "ok", said)
    else:
        yield Finding("retries", "note", said, f"so that both come back, {_TWO_LINES}")


def timezone(asked: Asked) -> Iterator[Finding]:
    """The zone in which recurring runs start; KFP has one for all."""
    found = _variables(asked, "ml-pipeline-scheduledworkflow")
    zone = found.get("CRON_SCHEDULE_TIMEZONE") or _installed(asked).get("cronScheduleTimezone")
    if zone:
        yield Finding("timezone", "ok", f"recurring runs start by the clock of {zone}")
    else:
        yield Finding(
            "timezone",
            "note",
            "recurring runs start by UTC (nothing says otherwise)",
            "to change it: cronScheduleTimezone in ConfigMap pipeline-install-config, for all of KFP",
        )


def _variables(asked: Asked, deployment: str) -> dict[str, str]:
    """The environment of a Deployment of KFP's; nothing where there is none."""
    path = f"/apis/apps/v1/namespaces/{_kfps(asked)}/deployments/{deployment}"
    try:
        found = asked.kubernetes.get(path, f"read Deployment {deployment}")
    except NotFound:
        return {}
    containers = found["spec"]["template"]["spec"]["containers"]
    return {v["name"]: v.get("value", "") for c in containers for v in c.get("env") or []}


def _installed(asked: Asked) -> Mapping[str, str]:
    path = f"/api/v1/namespaces/{_kfps(asked)}/configmaps/pipeline-install-config"
    try:
        found: Mapping[str, str] = asked.kubernetes.get(path, "read KFP's settings").get("data") or {}
    except NotFound:
        return {}
    return found


def _kfps(asked: Asked) -> str:
    return str(asked.options.kfp_namespace or KFP_NAMESPACE)


def _read(text: str) -> dict[str, Any]:
    """YAML or JSON, as people write it there."""
    import yaml

    try:
        found = yaml.safe_load(text) if text.strip() else {}
    except yaml.YAMLError:
        found = {}
    return found if isinstance(found, dict) else {}
