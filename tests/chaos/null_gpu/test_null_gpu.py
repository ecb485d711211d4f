"""What can be tested of CUDA without a card: memory, waits, launches, compiled layers; and right numbers.

Each test is a process of its own, in which torch sees the card of this package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.null_gpu import absent, environment

ROOT = Path(__file__).parents[3]
CHILD = Path(__file__).with_name("child.py")

pytestmark = pytest.mark.skipif(bool(absent()), reason=absent() or "there is one")


def asked(what: str, *arguments: str, **card: object) -> dict[str, object]:
    """What `child.py` answers, in a process that sees the card."""
    paths = [str(ROOT / "components"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    base = {"TORCHINDUCTOR_COMPILE_THREADS": "1", **environment(**card)}
    base["PYTHONPATH"] = os.pathsep.join([base.get("PYTHONPATH", ""), *paths])
    command = [sys.executable, str(CHILD), what, *arguments]
    done = subprocess.run(command, env=base, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {**json.loads(done.stdout.splitlines()[-1]), "said": done.stderr}


WIDE = "--layers=3 --width=1024 --heads=16 --kv-heads=16 --head-width=64 --feed-forward=4096 --context=512"
NARROW = "--layers=12 --width=256 --heads=4 --kv-heads=1 --head-width=64 --feed-forward=512 --context=2048"
PLAIN = ["--size=small --micro-batch=8", "--size=medium --micro-batch=16 --context=1024"]
SETTINGS = {
    "torch": [
        *PLAIN,
        "--size=medium --micro-batch=16 --optimizer=adamw --context=2048",
        "--size=medium --micro-batch=32 --gradient-checkpointing --context=1024",
        "--size=medium --micro-batch=8 --precision=fp32 --context=1024",
        "--size=small --micro-batch=32 --precision=fp16",
        "--size=small --micro-batch=32 --dropout=0.1",
        "--size=small --micro-batch=32 --packing=one --attention=flash --precision=fp32",
        "--size=large --micro-batch=1",
        f"{WIDE} --micro-batch=16",
        f"{NARROW} --micro-batch=16",
    ],
    "deepspeed": ["--size=large --micro-batch=1"],
    "deepspeed --zero-stage=2": PLAIN[1:],
    "deepspeed --zero-stage=3": PLAIN[1:],
    "deepspeed --offload=optimizer": PLAIN[1:],
}


@pytest.mark.process
@pytest.mark.parametrize("backend", SETTINGS)
def test_the_memory_estimate_is_what_torchs_allocator_held(backend):
    found = asked("peaks", backend, *SETTINGS[backend])
    ratios = {name: round(said / peak, 3) for name, (said, peak) in found["peaks"].items()}
    assert all(0.97 <= ratio <= 1.12 for ratio in ratios.values()), ratios


@pytest.mark.process
def test_compiled_layers_hold_less_as_the_estimate_says_and_nothing_warns():
    found = asked("peaks", "torch", "--size=medium --micro-batch=16 --compile --context=1024")
    ((said, peak),) = found["peaks"].values()
    assert 0.97 <= said / peak <= 1.1
    assert found["kernels"] > 5, "Triton's, of compiled layers"
    assert "warn" not in found["said"].lower().replace("process group", ""), found["said"]


@pytest.mark.process
@pytest.mark.parametrize("backend", ["torch", "deepspeed"])
def test_a_step_waits_for_nothing_and_copies_from_page_locked_memory(backend):
    found = asked("step", backend)
    assert found["backward"] == {"waits": 0, "pageable_copies": 0, "copies_out": 0}
    # DeepSpeed reads the norm and whether it is finite; what is ours reads nothing.
    assert found["step"]["waits"] <= {"torch": 0, "deepspeed": 4}[backend]


def test_scoring_waits_once_a_batch():
    found = asked("scoring")
    assert found["batches"] > 3 and found["waits"] == found["batches"]


@pytest.mark.process
def test_a_copy_on_the_card_holds_no_weight_twice():
    found = asked("copies")
    assert found["model"] <= found["card"] < 1.02 * found["model"]


@pytest.mark.process
def test_a_card_older_than_torchs_kernels_is_refused_by_name():
    """Volta: torch's wheels for CUDA 13 begin with 7.5."""
    command = [sys.executable, "-m", "yanmo.train.backends.hardware"]
    sees = environment(capability=7.0) | {"PYTHONPATH": str(ROOT / "components")}
    done = subprocess.run(command, env=sees, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "7.0, and this build of torch begins with 7.5" in done.stderr
    done = subprocess.run(command, env=sees | {"NULL_GPU_CAPABILITY": "75"}, capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["capability"] == [7, 5]


@pytest.mark.process
def test_a_card_that_computes_nothing_gives_no_score():
    """Its bits are 0, better than those of any model: nothing may be promoted by them."""
    found = asked("no_score")
    assert found["error"] == "EnvironmentFault"
    assert found["text"].startswith("by cuda:0 each of 2") and "computes nothing" in found["text"]


@pytest.mark.process
@pytest.mark.parametrize(("half", "capability"), [("bf16", 9.0), ("fp16", 7.5)])
def test_with_arithmetic_steps_on_the_card_equal_those_on_the_cpu(half, capability):
    found = asked("losses", half, arithmetic=True, capability=capability)
    assert found["products"] == {"bf16": "torch.bfloat16", "fp16": "torch.float16"}[half]
    for (name, card), cpu in zip(found["cuda"].items(), found["cpu"].values(), strict=True):
        assert card == pytest.approx(cpu, rel=1e-4 if "fp32" in name else 1e-2), name
    assert found["cuda"]["torch fp32"][-1] < found["cuda"]["torch fp32"][0] - 0.3


def test_a_card_without_memory_says_so_and_torch_goes_on():
    found = asked("out_of_memory", gibibytes=1.0)
    assert found == {"refused": "OutOfMemoryError", "then": 8 << 20, "said": found["said"]}
