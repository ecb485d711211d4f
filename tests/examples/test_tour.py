"""The notebook examples/tour.ipynb runs from its first cell to its last, on a store of a tiny run."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/pipelines"))

from servers.replayed import Replayed, answers, serving  # noqa: E402
from tiny_road import ENV, SETTINGS, write_text  # noqa: E402

NOTEBOOK = ROOT / "examples/tour.ipynb"
pytestmark = pytest.mark.skipif(not importlib.util.find_spec("nbclient"), reason="nbclient is not installed")


@contextmanager
def kfp() -> Iterator[tuple[str, Replayed | None]]:
    """The KFP that KFP_ENDPOINT names, else what a real one answered once."""
    if address := os.environ.get("KFP_ENDPOINT"):
        yield address, None
        return
    recorded = [answer for answer in answers("first") if "/pipelines" not in answer["request"]]
    for answer in recorded:
        if "/experiments" in answer["request"]:  # kfp's client words its filter otherwise than `yanmo submit`
            wanted = {"operation": 1, "key": "display_name", "stringValue": "Default"}
            predicate = quote_plus(json.dumps({"predicates": [wanted]}))
            answer["request"] = f"GET /apis/v2beta1/experiments?filter={predicate}&namespace="
    with serving(recorded) as (address, replayed):
        yield address, replayed


def test_the_last_cell_submits_the_pipeline_to_kfp(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    last = "".join(json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"][-1]["source"])
    monkeypatch.delenv("KFP_ENDPOINT", raising=False)
    exec(f"import os\n{last}", {})
    assert capsys.readouterr().out == "KFP_ENDPOINT is not set: nothing was submitted\n"
    monkeypatch.undo()
    with kfp() as (address, replayed):
        monkeypatch.setenv("KFP_ENDPOINT", address)
        exec(f"import os\n{last}", {})
    assert "submitted: " in capsys.readouterr().out
    if replayed:
        [run] = replayed.sent("POST /apis/v2beta1/runs")
        compiled = (ROOT / "pipelines/compiled/language_model.yaml").read_text(encoding="utf-8")
        assert run["pipeline_spec"]["pipeline_spec"] == next(yaml.safe_load_all(compiled))
        assert run["runtime_config"]["parameters"] == {"channel": "tour"}


@pytest.mark.road
def test_every_cell_runs_on_what_a_run_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbclient import NotebookClient
    from nbformat import read

    write_text(tmp_path / "text.jsonl", 120)
    words = [f"{name}={value}" for name, value in {"data_sources": "text.jsonl", **SETTINGS}.items()]
    command = [sys.executable, "-m", "yanmo.cli", "run", "--store=runs/demo", "--channel=demo"]
    settings = [word for each in words for word in ("--set", each)]
    subprocess.run([*command, *settings], cwd=tmp_path, env=ENV, check=True, capture_output=True)
    (tmp_path / "examples").mkdir()
    monkeypatch.delenv("KFP_ENDPOINT", raising=False)
    notebook = read(NOTEBOOK, 4)
    where = {"metadata": {"path": str(tmp_path / "examples")}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    said = [
        "".join(part.get("text", "") or str(part.get("data", {})) for part in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    tokens, table, verdict, plot, model = said[1:6]
    assert tokens[0] in "诗词文赋" and table.count("│ train") == 4
    assert verdict.startswith("Promoted: the channel had no champion yet") and "passed |" in verdict
    assert "image/png" in plot and "春眠不觉晓" in model


def test_it_is_committed_without_what_a_run_of_it_printed() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]
