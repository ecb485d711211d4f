"""What ranks exchange besides numbers is JSON, of any length, and never a pickle."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from yanmo.train.job import MEETING

SOURCES = Path(__file__).parents[4] / "components"
OF_PICKLES = {
    *("all_gather_object", "broadcast_object_list", "gather_object"),
    *("scatter_object_list", "send_object_list", "recv_object_list"),
}
"""Collectives of torch's that unpickle what arrives."""
RANK = """
import json, os, sys
from datetime import timedelta
import torch
from yanmo.train.backends import process_group
process_group.join("gloo", timedelta(seconds=60))
process_group.join("gloo", timedelta(seconds=60))  # again: nothing happens
rank = int(os.environ["RANK"])
value = {"rank": rank, "text": "\\u58a8" * 70_000 * rank, "none": None, "pair": (rank, [])}
found = process_group.gather(value, torch.device("cpu"))
of_first = (None, "", ["step-1", 2.5], "x" * 9)
first = [process_group.from_first(value if rank == 0 else {"of": rank}) for value in of_first]
print(json.dumps([found, first]))
"""


ALONE = """
import os, time
from datetime import timedelta
from pathlib import Path
import torch
from yanmo.train.backends import process_group
process_group.join("gloo", timedelta(seconds=60))
both = process_group.Collectives(2, torch.device("cuda"), timedelta(seconds=2))  # gloo's, beside NCCL's
gave_up, end = Path("gave-up"), time.monotonic() + 60
if os.environ["RANK"] == "0":
    try:
        both.any(True)
    except RuntimeError as error:
        print(type(error).__name__)
    gave_up.touch()
while not gave_up.exists() and time.monotonic() < end:
    time.sleep(0.1)
"""


def outputs(ranks: int, tmp_path: Path, code: str = RANK) -> list[str]:
    env = {**os.environ, "WORLD_SIZE": str(ranks), "GLOO_SOCKET_IFNAME": "lo", MEETING: str(tmp_path / "met")}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**env, "RANK": str(n)},
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for n in range(ranks)
    ]
    return [process.communicate(timeout=120)[0] for process in processes]


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="names Linux's loopback interface")
@pytest.mark.parametrize("ranks", [1, 3])
def test_every_rank_has_every_value_in_the_order_of_ranks(ranks, tmp_path):
    said = outputs(ranks, tmp_path)
    assert len(set(said)) == 1
    found, first = json.loads(said[0])
    assert [one["rank"] for one in found] == list(range(ranks))
    assert [len(one["text"]) for one in found] == [70_000 * n for n in range(ranks)]
    assert found[-1]["pair"] == [ranks - 1, []] and found[0]["none"] is None
    assert first == [None, "", ["step-1", 2.5], "x" * 9]


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="names Linux's loopback interface")
def test_ranks_on_gpus_wait_for_one_another_as_long_as_was_asked_for(tmp_path):
    """torch's own limit of such a group is 30 minutes: shorter than --hang-seconds may be."""
    assert outputs(2, tmp_path, ALONE) == ["RuntimeError\n", ""]


def test_no_source_uses_a_collective_that_unpickles():
    found = [
        f"{path.relative_to(SOURCES)}:{node.lineno}"
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr in OF_PICKLES)
        or (isinstance(node, ast.Name) and node.id in OF_PICKLES)
    ]
    assert not found
