"""What is set on a decoder: compiled, recomputed and thinned layers compute what they should."""

from __future__ import annotations

import shutil

import pytest
import torch
from tiny_model import SHAPE
from torch import Tensor

from compiled import with_compiling
from yanmo.common.errors import EnvironmentFault
from yanmo.model.decoder import Decoder
from yanmo.train.backends import hardware
from yanmo.train.backends.accelerator import find_device, prepare
from yanmo.train.backends.hardware import check_compiler, compile_problem
from yanmo.train.backends.loss_module import LossModule
from yanmo.train.config import TrainConfig
from yanmo.train.memory.fitting import fitted


def loss_and_gradients(**options) -> tuple[float, dict[str, Tensor]]:
    decoder = Decoder(SHAPE)
    decoder.initialize(torch.Generator().manual_seed(0), 1.0, "depth")
    prepare(decoder, TrainConfig(device="cpu", **options), "cpu")
    torch.manual_seed(1)
    ids = torch.randint(0, 60, (2, 17), generator=torch.Generator().manual_seed(2))
    loss = LossModule(decoder)(ids[:, :-1], torch.ones_like(ids[:, 1:]), ids[:, 1:].contiguous(), 1 / 32)
    loss.backward()
    return float(loss.detach()), {n: p.grad for n, p in decoder.named_parameters()}


def test_recomputed_activations_change_no_digit():
    assert_equal(loss_and_gradients(), loss_and_gradients(gradient_checkpointing=True))


def test_recomputed_activations_drop_the_same_elements():
    # Dropout's random numbers are drawn again in the backward: from the same state.
    assert_equal(
        loss_and_gradients(dropout=0.3), loss_and_gradients(dropout=0.3, gradient_checkpointing=True)
    )


def test_flash_and_masked_attention_give_the_same_gradients():
    one, two = loss_and_gradients(packing="one"), loss_and_gradients(attention="masked")
    assert abs(one[0] - two[0]) < 1e-5
    for name, gradient in one[1].items():
        assert torch.allclose(gradient, two[1][name], atol=1e-5), name


def assert_equal(one, two) -> None:
    assert one[0] == two[0]
    for name, gradient in one[1].items():
        assert torch.equal(gradient, two[1][name]), name


def test_dropout_thins_training_but_not_scoring():
    plain, thinned = loss_and_gradients()[0], loss_and_gradients(dropout=0.5)[0]
    assert plain != thinned
    decoder = Decoder(SHAPE)
    prepare(decoder, TrainConfig(device="cpu", dropout=0.9), "cpu")
    ids = torch.arange(8)[None]
    assert torch.equal(decoder.eval()(ids), decoder.eval()(ids))


def test_a_depth_aware_start_writes_less_the_deeper_the_model_is():
    decoder = Decoder(SHAPE)
    decoder.initialize(torch.Generator().manual_seed(0), 1.0, "depth")
    written = decoder.model.layers[0].mlp.down_proj.weight
    assert float(written.detach().std()) == pytest.approx(0.5 / 48**0.5 / 4**0.5, rel=0.1)
    decoder.initialize(torch.Generator().manual_seed(0), 1.0)
    assert not written.any()


def test_compiling_without_a_compiler_is_refused_before_the_start(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(EnvironmentFault, match=r"g\+\+"):
        check_compiler(TrainConfig(compile=True), "cpu")
    with pytest.raises(EnvironmentFault, match=r"install gcc and libc6-dev.*or train with --compile false"):
        check_compiler(TrainConfig(compile=True), "cuda")
    for device in ("cpu", "cuda", "mps"):
        check_compiler(TrainConfig(), device)


def test_compiling_on_cuda_asks_for_what_triton_asks_for(monkeypatch, tmp_path):
    # As triton.runtime.build has it: CC alone where it is set, else gcc or clang; and Python.h.
    for name in ("gcc", "clang", "mycc", "c++"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("")
        (tmp_path / name / name).chmod(0o755)
    (tmp_path / "Python.h").write_text("")
    monkeypatch.setattr(hardware.sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    monkeypatch.setattr(hardware.importlib.util, "find_spec", lambda name: name)
    monkeypatch.delenv("CC", raising=False)
    for path, cc, fits in (
        ("gcc", "", True),
        ("clang", "", True),
        ("c++", "", False),
        ("mycc", "mycc", True),
        ("gcc", "mycc", False),
    ):
        monkeypatch.setenv("PATH", str(tmp_path / path))
        monkeypatch.setenv("CC", cc)
        assert (compile_problem("cuda") == "") == fits, (path, cc)
    monkeypatch.setenv("PATH", str(tmp_path / "gcc"))
    monkeypatch.setenv("CC", "")
    monkeypatch.setattr(hardware.importlib.util, "find_spec", lambda name: None)
    assert "Triton, which this torch came without" in compile_problem("cuda")
    (tmp_path / "Python.h").unlink()
    assert f"there is no {tmp_path}/Python.h" in compile_problem("cuda")


def test_what_cannot_be_compiled_is_refused_before_torch_is_imported(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(EnvironmentFault, match="--compile: on CUDA Triton needs a C compiler"):
        fitted(TrainConfig(compile=True, device="cuda", ranks=1), 400)


def test_a_device_that_is_not_there_is_refused():
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(EnvironmentFault, match="--device cuda"):
        find_device("cuda")
    assert find_device("auto") == "cpu"


@pytest.mark.process
@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a C++ compiler")
def test_compiled_layers_compute_the_same():
    with_compiling(__file__, "compare_with_compiled()")


def compare_with_compiled():
    a, b = loss_and_gradients(), loss_and_gradients(compile=True)
    assert abs(a[0] - b[0]) < 1e-5
    assert all((a[1][n] - b[1][n]).abs().max() < 1e-4 for n in a[1])
