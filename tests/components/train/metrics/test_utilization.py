import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig
from yanmo.train.metrics.utilization import Utilization, flops_per_token, peak_flops, resident_memory

CHILD = """
import resource
from yanmo.train.metrics.utilization import resident_memory
before = resident_memory()
held = b"x" * 300_000_000
print(*before, *resident_memory(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells a process's own peak")
def test_the_peak_is_of_this_process_and_not_of_the_one_that_started_it():
    ballast = bytearray(b"x") * 1_500_000_000
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    now, most, now_with, most_with, counted = map(int, done.stdout.split())
    assert counted >= len(ballast), "the figure that would have been wrong"
    assert 0 < now <= most < 1_200_000_000
    assert now_with - now == pytest.approx(300_000_000, rel=0.02)
    assert now_with <= most_with < 1_500_000_000
    assert resident_memory()[0] > len(ballast)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA GH200 480GB", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A10G", None),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA GeForce RTX 4090", 165.2e12),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090 Ti", 80e12),
        ("NVIDIA GeForce RTX 5070 Ti", 87.9e12),
        ("NVIDIA RTX 6000 Ada Generation", 364.2e12),
        ("Tesla T4", None),
    ],
)
def test_a_peak_is_that_of_the_very_card_or_not_known(name, expected):
    assert peak_flops(name) == expected


@pytest.mark.parametrize("given", [0.0, 2.0])
def test_a_peak_that_is_given_makes_mfu_on_any_device(given):
    options = load(TrainConfig, ["--device=cpu", "--ranks=2", f"--peak-tflops={given}"], "yanmo train")
    shape = DecoderConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=64,
    )
    found = Utilization(torch.device("cpu"), options, shape, "masked").figures(1e6)
    flops = flops_per_token(shape, options.context) * 1e6
    assert found["flops_per_second"] == flops
    assert found.get("mfu") == (flops / (2 * given * 1e12) if given else None)
    assert found.get("peak_flops_per_second") == (2 * given * 1e12 or None)


def test_the_formula_counts_what_torch_counts():
    shape = DecoderConfig(
        vocab_size=397,
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=80,
        max_position_embeddings=64,
    )
    with torch.device("meta"):
        decoder, ids = Decoder(shape), torch.zeros(1, 64, dtype=torch.int64)
    decoder.attention = "flash"  # one document a row
    with FlopCounterMode(display=False) as counter:
        decoder(ids).sum().backward()
    assert counter.get_total_flops() / 64 == pytest.approx(flops_per_token(shape, 64), rel=1e-12)
