"""A KFP with several users: by its documented interface, as the cluster of the recordings has one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from servers.replayed import answers, serving

from yanmo.common.errors import EnvironmentFault, UsageError
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.place import PlaceOptions, api_address, run_link, token_of


def of_several(recorded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The recording, as of a server with several users, whose queries name the namespace."""
    found = []
    for each in recorded:
        request, body = each["request"], each["body"]
        if request.endswith("/healthz"):
            body = json.dumps({"multi_user": True})
        if request.startswith("GET /apis/v2beta1/pipelines/names/"):
            request += "?namespace=team-a"
        if request.startswith("GET /apis/v2beta1/experiments"):
            request += "&namespace=team-a"
        found.append({**each, "request": request, "body": body})
    return found


def test_each_request_has_the_token_of_now_and_the_namespace(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n", encoding="utf-8")
    options = {"token_file": str(token), "namespace": "team-a"}
    with serving(of_several(answers("first"))) as (address, server):
        api = KfpApi(PlaceOptions(host=address, **options))
        assert api.namespace == "team-a"
        token.write_text("second", encoding="utf-8")  # Kubernetes has renewed it
        text = (Path(__file__).parents[2] / "cluster_answers/tiny.yaml").read_text(encoding="utf-8")
        api.upload("yanmo-tiny", "v", text)
        assert api.experiment_id("Default")
    first, *others = server.authorizations
    assert first == "Bearer first" and set(others) == {"Bearer second"}
    (made,) = server.sent("POST /apis/v2beta1/pipelines")
    assert made["namespace"] == "team-a"


@pytest.mark.parametrize(
    ("text", "error"), [("", EnvironmentFault), ("two words", EnvironmentFault), ("汉", EnvironmentFault)]
)
def test_a_token_that_is_none_is_refused_and_not_shown(tmp_path: Path, text: str, error: type) -> None:
    file = tmp_path / "token"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(error, match="expected a token, one word") as raised:
        token_of(PlaceOptions(token_file=str(file)))
    assert not text or text not in str(raised.value)
    with pytest.raises(UsageError, match="there is no such file"):
        token_of(PlaceOptions(token_file=str(tmp_path / "gone")))


def test_where_kfp_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KFP_ENDPOINT", "KFP_UI_ENDPOINT", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="port-forward"):
        api_address(PlaceOptions())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert api_address(PlaceOptions()) == "http://ml-pipeline.kubeflow:8888"
    assert api_address(PlaceOptions(host="kfp.example/pipeline/#/runs")) == "http://kfp.example/pipeline"
    with pytest.raises(UsageError, match="expected http"):
        api_address(PlaceOptions(host="ftp://kfp.example"))
    options = PlaceOptions(host="http://api:8888", ui="https://ui.example/pipeline/")
    assert run_link(options, "r1", is_ui=False) == "https://ui.example/pipeline/#/runs/details/r1"
