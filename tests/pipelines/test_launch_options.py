"""What the form of the pipeline on nodes says is refused by the first task, before data are made."""

from __future__ import annotations

import pytest

from yanmo.common.errors import UsageError
from yanmo.stage.form import read_run
from yanmo_pipelines.stages import LANGUAGE_MODEL, ON_NODES

CONFIGS = {stage.name: stage.config for stage in ON_NODES}


def read(line: str = "", stages: dict[str, type] | None = None, **form: dict[str, str]) -> None:
    read_run(stages or CONFIGS, form, {"curate": {"sources": "bundled"}}, line)


@pytest.mark.parametrize(
    ("nodes", "gpus", "line", "expected"),
    [
        (
            "3",
            "0",
            "",
            "training_nodes 3: the 32 rows of a batch (train.batch_rows) do not divide among them",
        ),
        ("2", "8", "train.batch_rows=24", "with 8 ranks each"),
        ("4", "0", "train.ranks=16", "with 16 ranks each"),
        ("0", "0", "", "training_nodes 0: expected a whole number from 1 to 1000"),
        ("10000", "0", "", "training_nodes 10000: expected a whole number from 1 to 1000"),
    ],
)
def test_nodes_that_do_not_share_a_batch_are_refused(nodes: str, gpus: str, line: str, expected: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(line, launch={"nodes": nodes}, resolve={"training_pod_gpus": gpus})
    assert expected in str(refused.value)


def test_nodes_that_do_are_taken_and_without_launch_nobody_asks() -> None:
    read("train.ranks=2", launch={"nodes": "4"}, resolve={"training_pod_gpus": "3"})
    read("", launch={"nodes": "4"}, resolve={"training_pod_gpus": "8"})
    read("train.ranks=16", {stage.name: stage.config for stage in LANGUAGE_MODEL})


def test_preemptible_without_a_queue_is_named_as_the_option_it_is() -> None:
    with pytest.raises(UsageError, match="training_preemptible needs --queue"):
        read(launch={"preemptible": "true"})
