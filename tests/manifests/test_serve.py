"""An exported model behind KServe: what its strict schema and its runtime make of the manifest."""

from __future__ import annotations

import copy
from typing import Any

import yaml
from custom_resources import faults_of
from rendered import MANIFESTS, OWN

SERVE = MANIFESTS / "components/serve"


def service() -> dict[str, Any]:
    """The InferenceService."""
    text = (SERVE / "inference-service.yaml").read_text(encoding="utf-8")
    (found,) = (each for each in yaml.safe_load_all(text) if each["kind"] == "InferenceService")
    return dict(found)


def test_the_service_is_one_to_kserve() -> None:
    assert list(faults_of(service())) == []


def test_a_field_that_kserve_does_not_know_would_be_found() -> None:
    wrong = copy.deepcopy(service())
    model = wrong["spec"]["predictor"]["model"]
    model["storageURI"] = model.pop("storageUri")
    del model["modelFormat"]["name"]
    said = "; ".join(faults_of(wrong))
    assert "storageURI" in said and "'name' is a required property" in said


def test_it_reads_the_folder_of_an_export_with_an_account_that_has_no_other_rights() -> None:
    text = (SERVE / "inference-service.yaml").read_text(encoding="utf-8")
    account, found = yaml.safe_load_all(text)
    predictor = found["spec"]["predictor"]
    assert predictor["serviceAccountName"] == account["metadata"]["name"]
    assert account["automountServiceAccountToken"] is predictor["automountServiceAccountToken"] is False
    assert predictor["model"]["modelFormat"] == {"name": "huggingface"}
    assert predictor["model"]["storageUri"].startswith("s3://")
    assert all(each["metadata"]["labels"][OWN] == "yanmo" for each in (account, found))
    resources = predictor["model"]["resources"]
    assert resources["requests"] == resources["limits"]
