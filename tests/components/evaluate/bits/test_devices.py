"""GPUs are shared out among the processes of a machine, and each counts once for the cost."""

import pytest
import torch

from yanmo.common.errors import EnvironmentFault
from yanmo.evaluate.bits.devices import on_devices, ran_on, share_of_devices


def beside(monkeypatch, local, processes):
    monkeypatch.setenv("LOCAL_RANK", str(local))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))


@pytest.mark.parametrize(
    ("gpus", "shares"), [(3, [[0, 2], [1]]), (2, [[0], [1], [0]]), (1, [[0], [0]]), (0, [[], []])]
)
def test_processes_of_one_machine_share_its_gpus_out(monkeypatch, gpus, shares):
    for local, share in enumerate(shares):
        beside(monkeypatch, local, len(shares))
        assert share_of_devices(gpus) == share


def test_a_process_that_torchrun_did_not_start_takes_every_gpu_that_it_sees(monkeypatch):
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert share_of_devices(2) == [0, 1]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert ran_on("auto", 3) == {"device": "cuda", "ranks": 6}, "three machines of two"


@pytest.mark.parametrize(("processes", "world_size", "number"), [(2, 2, 4), (3, 3, 4), (4, 8, 8)])
def test_a_gpu_counts_once_however_many_processes_see_it(monkeypatch, processes, world_size, number):
    beside(monkeypatch, 0, processes)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert ran_on("auto", world_size) == {"device": "cuda", "ranks": number}
    assert ran_on("cpu", world_size) == {"device": "cpu", "ranks": world_size}


def test_a_gpu_that_is_not_there_is_a_matter_of_the_machine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(EnvironmentFault, match="this machine shows no GPU to torch; use one that does"):
        on_devices(torch.nn.Linear(1, 1), "cuda")
