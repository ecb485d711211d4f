"""Which node a machine is: options, and what torchrun's launchers set."""

from __future__ import annotations

import pytest

from yanmo.common.errors import UsageError
from yanmo.options.command_line import load, load_given
from yanmo.options.fields import by_kind
from yanmo.train.config import TrainConfig

TWO = ["--nnodes=2", "--rendezvous=node-0:29500"]


def test_the_key_does_not_depend_on_the_number_of_nodes():
    alone, two = load(TrainConfig, [], "yanmo train"), load(TrainConfig, TWO, "yanmo train")
    assert by_kind(alone, "semantic") == by_kind(two, "semantic")
    assert by_kind(two, "execution")["nnodes"] == 2


def test_what_kubeflow_trainer_sets_is_read(monkeypatch):
    values = {"NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "4", "MASTER_ADDR": "job-node-0-0.job"}
    for name, value in {**values, "MASTER_PORT": "29501"}.items():
        monkeypatch.setenv(f"PET_{name}", value)
    options, given = load_given(TrainConfig, ["--batch-rows=16"], "yanmo train")
    assert (options.nnodes, options.node_rank, options.ranks) == (2, 1, 4)
    assert options.meeting_point() == ("job-node-0-0.job", 29501)
    assert options.is_helper() and "ranks" in given, "this machine would decide about the ranks"
    assert (options.world_size, options.rank_rows) == (8, 2)


def test_a_flag_wins_over_the_launcher_and_auto_leaves_the_ranks_to_the_machine(monkeypatch):
    monkeypatch.setenv("PET_NNODES", "3")
    monkeypatch.setenv("PET_NPROC_PER_NODE", "auto")
    options, given = load_given(TrainConfig, TWO, "yanmo train")
    assert options.nnodes == 2 and "ranks" not in given


def test_an_address_of_ipv6_is_taken_in_brackets(monkeypatch):
    monkeypatch.setenv("PET_NNODES", "2")
    monkeypatch.setenv("PET_MASTER_ADDR", "fd00::7")
    assert load(TrainConfig, [], "yanmo train").meeting_point() == ("fd00::7", 29500)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--nnodes=0"], "--nnodes"),
        (["--nnodes=10000"], "--nnodes"),
        (["--nnodes=2"], "--nnodes 2 needs --rendezvous HOST:PORT"),
        ([*TWO, "--node-rank=2"], "--node-rank 2 of --nnodes 2: expected 0 to 1"),
        (["--node-rank=1"], "--node-rank 1 of --nnodes 1: expected 0"),
        (["--nnodes=2", "--rendezvous=node-0"], "expected HOST:PORT"),
        (["--nnodes=2", "--rendezvous=node-0:99999"], "expected HOST:PORT"),
        ([*TWO, "--ranks=3"], "does not divide among --ranks 3 on each of --nnodes 2"),
        ([*TWO, "--micro-batch=8", "--batch-rows=16", "--ranks=2"], "--batch-rows / --ranks / --nnodes"),
        ([*TWO, "--benchmark"], "--benchmark measures one machine"),
    ],
)
def test_what_cannot_be_is_refused_by_name(flags, said):
    with pytest.raises(UsageError) as refused:
        load(TrainConfig, flags, "yanmo train")
    assert said in str(refused.value)


def test_a_node_without_gpus_is_one_rank_of_one_thread():
    options = load(TrainConfig, [*TWO, "--batch-rows=6"], "yanmo train")
    assert (options.ranks, options.threads, options.rank_rows) == (1, 1, 3)
