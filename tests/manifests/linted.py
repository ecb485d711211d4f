"""`make check-manifests`: checkov over every overlay and over every pod template, wherever it stands.

checkov looks into the pods of kinds that it knows and passes over those in custom resources, so each template
is also given to it as a Job of its own. What it is told to leave out stands in `LEFT`, with the reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from rendered import OVERLAYS, objects, pods

LEFT = {
    "CKV_K8S_14": "images have a version as their tag; a digest is the registry's, which an overlay names",
    "CKV_K8S_43": "as above",
    "CKV_K8S_15": "IfNotPresent: tags are versions, never moved, and kind's images are in no registry",
    "CKV_K8S_35": "no Secret is a variable; what it takes for one are names of variables",
    "CKV_K8S_8": "a Job has no liveness to probe: its deadline ends it",
    "CKV_K8S_9": "a Job serves nobody who waits until it is ready",
    "CKV_K8S_21": "base has no namespace; overlays have one",
}


def main(checkov: str) -> int:
    """1 where checkov finds something that is not left out."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for overlay in OVERLAYS:
            place = Path(folder, overlay)
            place.mkdir()
            (place / "objects.yaml").write_text(yaml.safe_dump_all(objects(overlay)), encoding="utf-8")
            jobs = [_as_job(pod.owner, pod.labels, pod.spec, objects(overlay)) for pod in pods(overlay)]
            (place / "templates.yaml").write_text(yaml.safe_dump_all(jobs), encoding="utf-8")
            command = [checkov, "--directory", str(place), "--framework", "kubernetes", "--output", "json"]
            command += ["--skip-check", ",".join(LEFT), "--quiet", "--compact", "--skip-download"]
            said = subprocess.run(command, capture_output=True, text=True)
            found = json.loads(said.stdout)
            results, summary = found.get("results", {}), found.get("summary", found)
            for each in results.get("failed_checks", []):
                print(f"{overlay}: {each['check_id']} {each['resource']}: {each['check_name']}")
            print(f"{overlay}: {summary.get('passed')} checks passed, {summary.get('failed')} failed")
            failed += int(summary.get("failed", 1)) + int(summary.get("parsing_errors", 0))
    return int(failed > 0)


def _as_job(
    owner: str, labels: dict[str, str], spec: dict[str, Any], all_of_them: list[dict[str, Any]]
) -> dict[str, Any]:
    space = next(o["metadata"]["namespace"] for o in all_of_them if "namespace" in o["metadata"])
    name = owner.lower().replace("/", "-")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": space},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": {**spec, "restartPolicy": "Never"}}},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
