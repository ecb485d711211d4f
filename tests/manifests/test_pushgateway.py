"""The component `pushgateway`, and that nothing takes what is pushed for what is live."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest
from network_policies import Peer, allowed
from promql import ALERTS, RECORDS
from rendered import MANIFESTS, with_components

from yanmo.options.shared import RunOptions
from yanmo.stage.shared_metrics import declared
from yanmo_pipelines.resources import labels_of
from yanmo_pipelines.stages import LANGUAGE_MODEL

FINAL = sorted(
    {name for stage in LANGUAGE_MODEL for name, metric in declared(stage.name, stage.metrics) if metric.final}
)
GATEWAY = Peer(
    labels={"app": "pushgateway"}, namespace="monitoring", namespace_labels={"yanmo.dev/pushgateway": "true"}
)


@pytest.fixture(scope="module", params=[[], ["kfp-tasks"]], ids=["alone", "with kfp-tasks"])
def rendered(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """The base with the component in it, and maybe others."""
    return with_components(tmp_path_factory.mktemp("manifests"), "pushgateway", *request.param)


def test_jobs_get_the_address_as_the_option_reads_it(rendered: list[dict[str, Any]]) -> None:
    (settings,) = (each["data"] for each in rendered if each["kind"] == "ConfigMap")
    field = RunOptions.__dataclass_fields__["pushgateway"]
    address = settings[field.metadata["variable"]]
    assert RunOptions(pushgateway=address).pushgateway == address
    assert settings["YANMO_CHANNEL"] == "main", "what the base says stays"


@pytest.mark.parametrize("stage", [stage.name for stage in LANGUAGE_MODEL])
def test_the_pods_of_each_stage_reach_it_and_nothing_else_there(
    rendered: list[dict[str, Any]], stage: str
) -> None:
    policies = [each for each in rendered if each["kind"] == "NetworkPolicy"]
    job = {**labels_of(stage), "batch.kubernetes.io/controller-uid": "any"}
    task = {**labels_of(stage), "pipelines.kubeflow.org/v2_component": "true"}
    are_tasks_bound = any(each["metadata"]["name"] == "yanmo-kfp-tasks" for each in policies)
    for labels, is_bound in ((job, True), (task, are_tasks_bound)):
        pod = Peer(labels=labels, namespace="kubeflow")
        assert allowed(policies, pod, GATEWAY, 9091)
        assert allowed(policies, pod, GATEWAY, 9090) is not is_bound
        assert allowed(policies, pod, dataclasses.replace(GATEWAY, namespace_labels={}), 9091) is not is_bound


def test_no_rule_and_no_panel_takes_a_pushed_figure_for_a_pods() -> None:
    """Pushed, it never changes: an alert would never end, and a panel would show yesterday's run as alive.

    What looks for a pushed figure asks for its stage."""
    queries = RECORDS | {name: rule["expr"] for name, rule in ALERTS.items()}
    for path in sorted((MANIFESTS / "components/dashboards").glob("*.json")):
        found = re.findall(r'"expr": ("(?:[^"\\]|\\.)*")', path.read_text(encoding="utf-8"))
        queries |= {f"{path.name} {number}": json.loads(text) for number, text in enumerate(found)}
    assert len(queries) > 60
    for where, query in queries.items():
        for name in FINAL:
            is_meant = re.search(rf"\b{name}\{{stage(=|!=)", query)  # a label that no pod's figure has
            if re.search(rf"\b{name}\b", query) and not is_meant:
                assert re.search(r"on \((job, )?instance\b", query), f"{where}: {name} of no pod: {query}"
