"""Every backend and ZeRO stage makes the plain optimizer's steps, and hands its state on to any other."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from tiny_model import SHAPE

from compiled import with_compiling
from yanmo.model.decoder import Decoder
from yanmo.model.scoring import token_bits
from yanmo.train.backends.engine import Part
from yanmo.train.backends.optimizer import MatrixAdamW, parameter_groups
from yanmo.train.backends.plain import open_engine
from yanmo.train.config import TrainConfig
from yanmo.train.data import NO_TARGET, Batch

pytestmark = pytest.mark.usefixtures("one_rank")

BACKENDS = [
    {"zero_stage": 1},
    {"zero_stage": 2},
    {"zero_stage": 3},
    {"backend": "torch"},
]
backends = pytest.mark.parametrize("chosen", BACKENDS, ids=lambda c: "-".join(map(str, c.values())))


def options(**changes) -> TrainConfig:
    values = {"batch_rows": 4, "ranks": 1, "context": 16, "device": "cpu", "clip": 0.1}
    return TrainConfig(**{**values, **changes})


def random_decoder(precision: str = "fp32") -> Decoder:
    torch.manual_seed(0)
    decoder = Decoder(SHAPE)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    if precision == "bf16":
        decoder.to(torch.bfloat16).float()  # an engine rounds the first weights
    return decoder


def batch(step: int) -> Batch:
    rng = np.random.default_rng(step)
    ids = rng.integers(0, 60, (4, 17))
    return Batch(ids[:, :-1], ids[:, 1:], np.ones((4, 16), np.int64))


def train(engine, steps: range, micro: int = 4) -> list[float]:
    """Losses of the steps."""
    found = []
    for step in steps:
        rows = batch(step)
        losses = [engine.accumulate(rows.rows(i, i + micro), rows.num_targets) for i in range(0, 4, micro)]
        assert engine.step()
        found.append(float(sum(losses)))
    return found


@backends
@pytest.mark.parametrize(("micro", "precision", "tolerance"), [(4, "fp32", 1e-5), (2, "bf16", 0.1)])
def test_clipped_steps_equal_the_plain_optimizer(chosen, micro, precision, tolerance):
    # The measure is how far the weights went in six steps. bf16 rounds activations and weights that the
    # forward reads to 8 bits, so its gradients differ.
    asked = options(precision=precision, micro_batch=micro, **chosen)
    decoder = random_decoder(precision)
    plain = copy.deepcopy(decoder)
    start = {n: p.detach().clone() for n, p in plain.named_parameters()}
    engine = open_engine(decoder, asked, "cpu")
    plain_optimizer = MatrixAdamW(parameter_groups(plain, asked), (0.9, 0.95))
    for step in range(6):
        rows = batch(step)
        logits = plain(torch.from_numpy(rows.ids_BT)).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(rows.targets_BT).flatten())
        loss.backward()
        found = train(engine, range(step, step + 1), micro)
        assert abs(found[0] / rows.num_targets - loss) < tolerance
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), asked.clip)
        assert norm > 2 * asked.clip, "the test is about clipped steps"
        assert abs(engine.gradient_norm() - norm) < tolerance * norm
        plain_optimizer.step()
        plain_optimizer.zero_grad()
    weights = engine.full_weights()
    for name, parameter in plain.named_parameters():
        moved = (parameter - start[name]).norm()
        assert (weights[name] - parameter).norm() < max(tolerance, 1e-4) * moved, name


def state_of(engine) -> dict[tuple[str, str], torch.Tensor]:
    """A copy of an engine's state, put together."""
    pieces: dict[tuple[str, str], list[Part]] = {}
    for part in engine.parts():
        pieces.setdefault((part.name, part.kind), []).append(part)
    return {
        key: torch.cat([p.values.clone() for p in sorted(found, key=lambda p: p.start)])
        for key, found in pieces.items()
    }


@backends
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_state_goes_on_in_every_backend(chosen, precision):
    first = open_engine(random_decoder(), options(precision=precision, **chosen), "cpu")
    train(first, range(3))
    state, updates = state_of(first), first.updates
    shapes = {name: p.numel() for name, p in Decoder(SHAPE).named_parameters()}
    assert all(len(state[name, "weight"]) == count for name, count in shapes.items())
    expected = train(first, range(3, 6))
    for other in BACKENDS if precision == "fp32" else (chosen, BACKENDS[-1]):
        second = open_engine(Decoder(SHAPE), options(precision=precision, **other), "cpu")
        second.restore(lambda name, kind, start, n: state[name, kind][start : start + n], updates)
        found = train(second, range(3, 6))
        if other == chosen:
            assert found == expected
        else:  # sums in another order
            assert np.allclose(found, expected, rtol=1e-5 if precision == "fp32" else 1e-3)


@backends
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_skipped_step_leaves_no_trace(chosen, precision):
    asked = options(precision=precision, **chosen)
    one, two = (open_engine(random_decoder(), asked, "cpu") for _ in range(2))
    train(one, range(2))
    train(two, range(2))
    rows = batch(77)
    two.accumulate(rows, rows.num_targets)
    two.skip()
    assert two.updates == 2
    assert train(one, range(2, 4)) == train(two, range(2, 4))


@backends
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gradient_that_is_not_finite_moves_nothing(chosen, precision):
    engine = open_engine(random_decoder(), options(precision=precision, **chosen), "cpu")
    train(engine, range(2))
    before = state_of(engine)
    rows = batch(5)
    with torch.no_grad():
        norm = engine.decoder.model.norm.weight
        kept = norm.clone()
        norm.fill_(float("nan"))
    engine.accumulate(rows, rows.num_targets)
    with torch.no_grad():
        norm.copy_(kept)
    assert not engine.step()
    assert not np.isfinite(engine.gradient_norm())
    after = state_of(engine)
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert engine.updates == 2
    train(engine, range(2, 3))


def watch(engine) -> dict[str, torch.Tensor]:
    """The gradients of each step, by parameter; a dict that fills while the engine trains."""
    seen: dict[str, torch.Tensor] = {}

    def see(parts: list[Part]) -> None:
        seen.update({p.name: p.values.clone() for p in parts})

    engine.observer = see
    return seen


@backends
def test_an_observer_sees_the_clipped_gradient(chosen):
    engine = open_engine(random_decoder(), options(**chosen), "cpu")
    seen = watch(engine)
    train(engine, range(1))
    squares = sum(float(gradient.square().sum()) for gradient in seen.values())
    assert abs(squares**0.5 - 0.1) < 1e-4, "the whole gradient's norm is the clip"
    assert set(seen) == {name for name, _ in Decoder(SHAPE).named_parameters()}
    engine.observer = None
    seen.clear()
    train(engine, range(1, 2))
    assert not seen


@backends
def test_micro_batches_are_added_up_in_fp32(chosen):
    gradients = []
    for asked in (chosen, {"backend": "torch"}):
        engine = open_engine(random_decoder("bf16"), options(precision="bf16", micro_batch=1, **asked), "cpu")
        gradients.append(watch(engine))
        train(engine, range(1), micro=1)
    ours, fp32 = gradients
    for name in fp32:  # bf16 sums differ by 2e-3
        assert (ours[name] - fp32[name]).norm() < 1e-5 * fp32[name].norm(), name


@backends
def test_the_scoring_decoder_has_whole_weights(chosen):
    engine = open_engine(random_decoder(), options(**chosen), "cpu")
    train(engine, range(2))
    ids = torch.from_numpy(batch(9).ids_BT)
    plain = Decoder(SHAPE)
    plain.load_state_dict(engine.full_weights())
    with engine.scoring() as decoder, torch.no_grad():
        assert torch.allclose(decoder(ids), plain(ids), atol=1e-6)
    train(engine, range(2, 3))


@backends
def test_a_batch_without_a_target_is_a_step_of_nothing(chosen):
    engine, whole = open_engine(random_decoder(), options(**chosen), "cpu"), batch(0)
    silent = Batch(whole.ids_BT, np.full_like(whole.targets_BT, NO_TARGET), whole.segments_BT)
    assert float(engine.accumulate(silent, silent.num_targets)) == 0 and engine.step()
    assert engine.gradient_norm() == 0
    assert all(bool(torch.isfinite(part.values).all()) for part in engine.parts())


@pytest.mark.parametrize("stage", [1, 2])
def test_in_fp32_the_weights_themselves_are_updated(stage):
    engine = open_engine(random_decoder(), options(zero_stage=stage), "cpu")
    held = sum(flat.untyped_storage().nbytes() for flat in engine.flats)
    used = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in engine.decoder.parameters()}
    assert set(used) == {flat.untyped_storage().data_ptr() for flat in engine.flats}
    assert sum(used.values()) == held
    before = {part.name: part.values.clone() for part in engine.parts() if part.kind == "weight"}
    train(engine, range(1))
    after = {name: p.detach().flatten() for name, p in engine.decoder.named_parameters()}
    assert all(not torch.equal(before[name], after[name]) for name in after)


@backends
def test_the_norm_of_several_micro_batches_is_that_of_one(chosen):
    norms = []
    for micro in (4, 1):
        engine = open_engine(random_decoder(), options(micro_batch=micro, **chosen), "cpu")
        train(engine, range(1), micro=micro)
        norms.append(engine.gradient_norm())
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


@pytest.mark.process
def test_on_cuda_a_validation_compiles_nothing_and_training_nothing_again():
    with_compiling(__file__, "count_what_is_compiled()")


def count_what_is_compiled():
    # The engine's device is only what it says here: its tensors are on the CPU.
    engine = open_engine(random_decoder(), options(backend="torch", compile=True), "cpu")
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    for layer in engine.decoder.model.layers:
        layer.compile(backend=backend)
    train(engine, range(2))
    of_training = len(graphs)
    documents = [np.arange(n) % 60 for n in (5, 16, 16, 9)]
    here, engine.device = engine.device, torch.device("cuda")
    with engine.scoring() as decoder:
        scored = token_bits(decoder, documents)
    engine.device = here
    train(engine, range(2, 3))
    assert of_training == len(graphs) > 0 and engine.decoder.training
    with engine.scoring() as decoder:  # on a CPU as ever
        again = token_bits(decoder, documents)
    assert len(graphs) > of_training and len(again) == len(scored) == 4
