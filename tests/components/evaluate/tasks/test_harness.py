"""Tasks of lm-evaluation-harness from a local folder, with our model as its own."""

import errno
import importlib.util
import json
import sys
import types

import numpy as np
import pytest
import torch
from tiny_store import HAN, read

from yanmo.common.errors import DataError, EnvironmentFault, StorageError, UsageError
from yanmo.evaluate.bits.of_documents import load_model
from yanmo.evaluate.config import STAGE
from yanmo.evaluate.tasks.harness import folder_digest, loglikelihoods, run_harness
from yanmo.evaluate.work import STEPS
from yanmo.stage.run import main
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer

installed = importlib.util.find_spec("lm_eval") is not None
needs_harness = pytest.mark.skipif(not installed, reason="lm-evaluation-harness is not installed (an extra)")
COMMON = """
dataset_path: json
dataset_kwargs:
  data_files:
    test: lines.jsonl
test_split: test
"""
CHOICE = """
task: next_line
output_type: multiple_choice
doc_to_text: "{{line}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{right}}"
target_delimiter: ""
metric_list:
  - metric: acc
"""
ROLLING = """
task: bits
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{line}}"
metric_list:
  - metric: bits_per_byte
"""
WRITTEN = """
task: go_on
output_type: generate_until
doc_to_text: "{{line}}"
doc_to_target: "{{choices[0]}}"
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 4
metric_list:
  - metric: exact_match
"""


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "tasks"
    root.mkdir()
    rows = [{"line": HAN[i : i + 5], "choices": [HAN[i + 5 : i + 7], "明明"], "right": 0} for i in range(12)]
    (root / "lines.jsonl").write_text("\n".join(json.dumps(r) for r in rows), encoding="utf-8")
    for name, body in {"choice": CHOICE, "rolling": ROLLING, "written": WRITTEN}.items():
        (root / f"{name}.yaml").write_text(COMMON + body, encoding="utf-8")
    return root


def test_log_likelihoods_are_those_of_one_forward(ground):
    loaded = load_model(ground.model)
    found = loglikelihoods(loaded, [("明 ", "月青"), ("", "天"), ("把酒问青天", "不知")])
    for (context, rest), (value, likeliest) in zip(
        [("明", " 月青"), ("", "天"), ("把酒问青天", "不知")], found, strict=True
    ):
        ids = loaded.encode([context + rest])[0][:-1]
        begin = len(loaded.encode([context])[0]) - 1
        with torch.no_grad():
            logs = torch.log_softmax(loaded.model(torch.tensor([ids]))[0].double(), -1)
        assert value == pytest.approx(
            sum(float(logs[t - 1, ids[t]]) for t in range(begin, len(ids))), abs=1e-4
        )
        assert likeliest == all(int(logs[t - 1].argmax()) == ids[t] for t in range(begin, len(ids)))


def test_a_folder_is_known_by_its_files(folder, tmp_path):
    first = folder_digest(str(folder))
    (folder / "lines.jsonl").write_text("{}")
    assert folder_digest(str(folder)) != first
    with pytest.raises(UsageError, match="expected a folder with YAML files"):
        folder_digest(str(tmp_path / "nowhere"))


@pytest.mark.skipif(installed, reason="lm-evaluation-harness is installed")
def test_an_absent_harness_is_named_with_what_to_do(ground, folder):
    with pytest.raises(EnvironmentFault, match=r"pip install '\.\[harness\]'"):
        run_harness(load_model(ground.model), str(folder))


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), OSError),
        (StorageError("not now"), StorageError),
        (OSError(errno.EIO, "a task's own"), DataError),
        (KeyError("a task's own"), DataError),
    ],
)
def test_a_store_that_takes_no_piece_now_is_no_fault_of_the_tasks(
    ground, folder, monkeypatch, raised, expected
):
    def simple_evaluate(**_):
        raise raised

    tasks = types.SimpleNamespace(TaskManager=lambda **_: types.SimpleNamespace(all_tasks=["next"]))
    model = types.SimpleNamespace(LM=object)
    lm_eval = types.SimpleNamespace(__version__="0", simple_evaluate=simple_evaluate)
    parts = {"lm_eval": lm_eval, "lm_eval.tasks": tasks, "lm_eval.api": model, "lm_eval.api.model": model}
    for name, part in parts.items():
        monkeypatch.setitem(sys.modules, name, part)
    with pytest.raises(expected) as found:
        run_harness(load_model(ground.model), str(folder))
    assert (found.value is raised) == (expected is not DataError)


@needs_harness
def test_tasks_of_a_local_folder_end_in_the_evaluation(ground, folder):
    more = ("--documents", "none", "--samples", "1", "--harness-tasks", str(folder))
    assert main(STAGE, STEPS, ground.arguments(*more)) == 0
    output = open_reference(ground.store, read_pointer(ground.store, "dev", "evaluate"))
    tasks = read(output, "harness.json")["tasks"]
    assert sorted(tasks) == ["bits", "go_on", "next_line"]
    loaded = load_model(ground.model)
    rows = [json.loads(line) for line in (folder / "lines.jsonl").read_text(encoding="utf-8").splitlines()]
    right = [np.diff([v for v, _ in loglikelihoods(loaded, [(r["line"], c) for c in r["choices"]])])[0] < 0
             for r in rows]  # fmt: skip
    assert tasks["next_line"]["acc,none"] == pytest.approx(np.mean(right), abs=1e-5)
    nats = sum(v for v, _ in loglikelihoods(loaded, [("", r["line"]) for r in rows]))
    size = sum(len(r["line"].encode()) for r in rows)
    assert tasks["bits"]["bits_per_byte,none"] == pytest.approx(-nats / size / np.log(2), abs=1e-4)


@needs_harness
def test_a_task_without_its_data_is_refused_by_name(ground, folder):
    (folder / "lines.jsonl").unlink()
    with pytest.raises(DataError, match="cannot run its tasks"):
        run_harness(load_model(ground.model), str(folder))
