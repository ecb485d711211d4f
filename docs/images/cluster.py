"""Makes the pictures of docs/tutorials/kubeflow.md from the UI of Kubeflow Pipelines with two finished runs:

    python docs/images/cluster.py http://localhost:8080

Needs Chromium and fonts with Chinese (Debian: chromium fonts-noto-cjk). The pipeline is `language-model`
unless named, the runs its two newest that ended well; nothing is started or changed.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests/components"))

from browser import Browser, browser  # noqa: E402

_NODE = """[...document.querySelectorAll('.react-flow__node')].filter(e => e.innerText.trim() == {name})
    .sort((a, b) => b.getBoundingClientRect().top - a.getBoundingClientRect().top)[0]"""
"""The lowest of that name: curate has a `report` as well as promote."""
_BUTTON = "[...document.querySelectorAll('button')].find(e => e.innerText.trim() == {name})"
_SECONDS = 60


def asked(ui: str, path: str) -> Any:
    """An answer of KFP's API, by way of the UI."""
    with urllib.request.urlopen(f"{ui}/apis/v2beta1/{path}", timeout=_SECONDS) as answer:
        return json.loads(answer.read())


def found(window: Browser, element: str) -> None:
    """Wait until an element is there, and what is loaded with it."""
    end = time.monotonic() + _SECONDS
    while not window.ask(f"!!({element})"):
        if time.monotonic() > end:
            raise TimeoutError(f"the page has no {element}")
        time.sleep(0.2)
    time.sleep(3)


def click(window: Browser, element: str) -> None:
    found(window, element)
    window.ask(f"({element}).click()")
    time.sleep(3)


def picture(window: Browser, name: str) -> None:
    file = HERE / f"kfp-{name}.webp"
    file.write_bytes(
        base64.b64decode(window.call("Page.captureScreenshot", format="webp", quality=80)["data"])
    )
    print(file)


def pictures(window: Browser, ui: str, pipeline: str) -> None:
    """The form, the graph, the verdict and the report of the newest run, and two runs side by side."""
    listed = asked(ui, "pipelines?page_size=200")["pipelines"]
    known = next(p["pipeline_id"] for p in listed if p["display_name"] == pipeline)
    newest = asked(ui, "runs?page_size=100&sort_by=created_at%20desc")["runs"]
    runs = [
        run["run_id"]
        for run in newest
        if run["state"] == "SUCCEEDED"
        and run.get("pipeline_version_reference", {}).get("pipeline_id") == known
    ][:2]
    versions = asked(ui, f"pipelines/{known}/versions?page_size=1&sort_by=created_at%20desc")[
        "pipeline_versions"
    ]
    of_it = f"pipelineId={known}&pipelineVersionId={versions[0]['pipeline_version_id']}"
    window.open(f"{ui}/#/runs/new?{of_it}", width=1000, height=2200)
    found(window, "document.getElementById('train_steps')")
    picture(window, "form")
    window.open(f"{ui}/#/runs/details/{runs[0]}", width=1500, height=1440)
    found(window, _NODE.format(name="'promote'"))
    window.ask(
        "document.querySelector('.react-flow__minimap').style.display = 'none'"
    )  # it hides an artifact
    picture(window, "graph")
    click(window, _NODE.format(name="'report'") + ".querySelector('button')")
    click(window, _BUTTON.format(name="'Visualization'"))
    found(window, "document.querySelector('iframe')")
    picture(window, "report")
    window.open(f"{ui}/#/compare?runlist={','.join(runs)}", width=1300, height=1760)
    found(window, "[...document.querySelectorAll('*')].find(e => e.innerText == 'train_tokens_millions')")
    picture(window, "compare")


def main() -> None:
    ui, *names = sys.argv[1:]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, browser(Path(folder)) as window:
        pictures(window, ui.rstrip("/"), names[0] if names else "language-model")


if __name__ == "__main__":
    main()
