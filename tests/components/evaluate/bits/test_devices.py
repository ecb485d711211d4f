"""What scores: every GPU that the process sees, or the CPU."""

import pytest
import torch

from yanmo.common.errors import EnvironmentFault
from yanmo.evaluate.bits.of_documents import on_devices, ran_on


def test_every_gpu_counts_for_the_cost_and_the_cpu_as_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert ran_on("auto") == {"device": "cuda", "ranks": 4}
    assert ran_on("cpu") == {"device": "cpu", "ranks": 1}


def test_a_gpu_that_is_not_there_is_a_matter_of_the_machine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(EnvironmentFault, match="this machine shows no GPU to torch; use one that does"):
        on_devices(torch.nn.Linear(1, 1), "cuda")
