"""The memory estimate follows what it should, and refuses with what would fit."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from yanmo.common.errors import EnvironmentFault
from yanmo.model.decoder import Decoder
from yanmo.model.lora import adapt
from yanmo.options.command_line import load
from yanmo.train.backends.hardware import Machine
from yanmo.train.backends.zero import engine_config, fit_buckets
from yanmo.train.config import TrainConfig
from yanmo.train.memory import fitting
from yanmo.train.memory.estimate import (
    MOST_OF_A_BUCKET,
    MOST_TOGETHER,
    SCORED_TOKENS,
    check,
    estimate,
    largest_that_fits,
    parameters,
    room,
)
from yanmo.train.models.decoders import decoder_config, lora_of
from yanmo.train.options.recipe_options import num_parameters, shape_of


def options(*flags: str) -> TrainConfig:
    return load(TrainConfig, list(flags), "yanmo train")


def test_sharing_out_and_computing_again_need_less():
    whole = estimate(options("--size=large", "--ranks=4"), 8192, "cpu")
    for change, what in (
        ({"zero_stage": 2}, "gradients"),
        ({"zero_stage": 3}, "weights"),
        ({"gradient_checkpointing": True}, "activations"),
        ({"micro_batch": 1}, "activations"),
        ({"precision": "bf16"}, "activations"),
    ):
        other = estimate(dataclasses.replace(options("--size=large", "--ranks=4"), **change), 8192, "cpu")
        assert getattr(other, what) < 0.8 * getattr(whole, what), change


def test_a_rank_of_many_holds_no_gradients_of_billions_under_zero_2_and_3():
    """They are reduced and freed a bucket at a time, so 30 billion fit into 64 GPUs of 80 GB."""
    shape = ["--layers=55", "--width=7168", "--heads=56", "--kv-heads=7", "--head-width=128"]
    shape += ["--feed-forward=19712", "--context=4096", "--batch-rows=1024", "--ranks=64", "--micro-batch=1"]
    asked = options(*shape, "--precision=bf16", "--device=cuda", "--optimizer=adamw", "--valid-characters=0")
    held = {
        stage: estimate(dataclasses.replace(asked, zero_stage=stage), 32768, "cuda").activations
        for stage in (1, 2, 3)
    }
    count = num_parameters(shape_of(asked), 32768)
    assert held[1] - held[2] == 2 * count - 4 * 500_000_000 and held[2] == held[3]
    whole = dataclasses.replace(asked, memory_gib=79.6, zero_stage=3, gradient_checkpointing=True)
    check(whole, 32768, "cuda")


def test_the_largest_bucket_is_the_one_that_deepspeed_gets():
    config = engine_config(options("--zero-stage=3"))
    fit_buckets(config, 10 * MOST_OF_A_BUCKET, ranks=8)
    assert config["zero_optimization"]["reduce_bucket_size"] == MOST_OF_A_BUCKET


def test_on_cuda_what_muon_takes_together_is_in_the_estimate():
    asked = options("--size=medium", "--ranks=1", "--micro-batch=1", "--context=64", "--monitor=off")
    asked = dataclasses.replace(asked, backend="torch", valid_characters=0)
    added = [estimate(dataclasses.replace(asked, optimizer=o), 400, "cuda").copies for o in ("muon", "adamw")]
    assert added[0] - added[1] > 20 * MOST_TOGETHER, "and its momentum"


def test_on_cuda_the_batch_of_a_validation_is_in_the_estimate():
    asked = options("--size=medium", "--ranks=1", "--micro-batch=1", "--context=64", "--monitor=off")
    asked = dataclasses.replace(asked, backend="torch", optimizer="adamw")
    copies = [
        estimate(dataclasses.replace(asked, valid_characters=n), 8192, "cuda").copies for n in (0, 1000)
    ]
    assert copies[1] > copies[0] and estimate(asked, 8192, "cuda").copies > 2 * 4 * SCORED_TOKENS * 8192


def test_offload_moves_states_to_the_cpu():
    asked = options("--size=large", "--ranks=1", "--backend=deepspeed", "--precision=bf16", "--device=cuda")
    moved = dataclasses.replace(asked, offload="optimizer")
    there, here = (estimate(o, 8192, "cuda") for o in (asked, moved))
    assert here.optimizer == 0 and here.host > there.optimizer > 0
    assert here.total < there.total


def test_what_cannot_fit_is_refused_with_what_would():
    asked = options("--size=medium", "--backend=deepspeed", "--memory-gib=6.6", "--device=cpu")
    with pytest.raises(EnvironmentFault, match="--micro-batch 2 would fit"):
        check(asked, 8192, "cpu")
    check(dataclasses.replace(asked, micro_batch=2), 8192, "cpu")
    tight = options("--size=large", "--backend=deepspeed", "--memory-gib=14", "--device=cpu")
    with pytest.raises(EnvironmentFault, match="--gradient-checkpointing would fit"):
        check(tight, 8192, "cpu")
    with pytest.raises(EnvironmentFault, match="smaller --size"):
        check(dataclasses.replace(asked, memory_gib=1), 8192, "cpu")
    for shape in ({"layers": 10**9}, {"heads": 10**9}, {"width": 10**8}, {"feed_forward": 10**9}):
        with pytest.raises(EnvironmentFault, match="smaller --size"):
            check(dataclasses.replace(asked, memory_gib=0, **shape), 8192, "cpu")


def test_a_model_that_cannot_be_trained_whole_is_offered_lora():
    shape = ["--layers=28", "--width=1024", "--heads=16", "--kv-heads=8", "--head-width=128", "--ranks=1"]
    shape += ["--feed-forward=3072", "--tied-head=true", "--start=random", "--context=512", "--memory-gib=8"]
    for model, advice in ((f"--model=train/{64 * 'a'}", "--lora-rank 16 would fit"), ("", "nothing here")):
        with pytest.raises(EnvironmentFault, match=advice):
            check(options(*shape, *([model] if model else [])), 151_936, "cpu")


def test_auto_takes_the_largest_micro_batch_that_fits():
    asked = options("--size=small", "--ranks=1", "--micro-batch=auto", "--memory-gib=4", "--device=cpu")
    rows = fitting.settle(asked, 8192, "cpu").micro_batch
    assert 64 % rows == 0 and 1 < rows < 64
    fits = dataclasses.replace(asked, micro_batch=rows)
    check(fits, 8192, "cpu")
    with pytest.raises(EnvironmentFault):
        check(dataclasses.replace(asked, micro_batch=2 * rows), 8192, "cpu")


def test_auto_fills_no_more_than_the_share_of_a_gpu_that_a_rank_may_take():
    asked = options("--size=medium", "--ranks=1", "--micro-batch=auto", "--memory-gib=40", "--device=cuda")
    half = dataclasses.replace(asked, memory_share=0.5)
    assert largest_that_fits(half, 8192, "cuda") < largest_that_fits(asked, 8192, "cuda")
    assert largest_that_fits(half, 8192, "cuda") == largest_that_fits(
        dataclasses.replace(asked, memory_gib=20), 8192, "cuda"
    )
    fits = dataclasses.replace(asked, micro_batch=largest_that_fits(asked, 8192, "cuda"))
    check(fits, 8192, "cuda")
    with pytest.raises(
        EnvironmentFault, match=r"there are 19\.8 GB to plan with; --micro-batch .* would fit"
    ):
        check(dataclasses.replace(fits, memory_share=0.5), 8192, "cuda")
    on_a_cpu = dataclasses.replace(half, device="cpu", memory_gib=4)
    assert room(on_a_cpu, "cpu") == room(dataclasses.replace(on_a_cpu, memory_share=1.0), "cpu")


@pytest.mark.parametrize(("cpus", "ranks", "most"), [(2, 2, 256), (64, 4, 512), (2, 600, 1)])
def test_more_threads_than_the_machine_can_start_are_refused(monkeypatch, cpus, ranks, most):
    """Without a look at this, 10,000 of them end a rank by SIGSEGV: 75, run it again."""
    monkeypatch.setattr("yanmo.train.memory.fitting.usable_cpus", lambda: cpus)
    asked = options("--ranks=2", "--device=cpu", "--threads=1")
    asked = dataclasses.replace(asked, ranks=ranks, batch_rows=ranks)
    fitting.check_threads(dataclasses.replace(asked, threads=most))
    if most < 512:
        with pytest.raises(EnvironmentFault, match=f"--threads {most + 1} for .* give at most {most};"):
            fitting.fitted(dataclasses.replace(asked, threads=most + 1), 400)


PEAK_OF = Path(__file__).parent / "peak_of.py"
_spec = importlib.util.spec_from_file_location("peak_of", PEAK_OF)
peak_of = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(peak_of)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_a_process_with_all_its_libraries_is_in_the_estimate(
    trained_store: Path, tiny: Mapping[str, int | str]
):
    """A model of next to no weights: what its ranks take is Python, torch and all that is imported."""
    text = next(trained_store.rglob("metrics.jsonl")).read_text(encoding="utf-8")
    peak = max(json.loads(line).get("memory_peak_bytes", 0) for line in text.splitlines())
    result = estimate(
        options(*(f"--{n.replace('_', '-')}={value}" for n, value in tiny.items())), 1024, "cpu"
    )
    assert result.total - result.base < 30 << 20 < peak < 1.03 * result.total, (peak, str(result))


def measured(backend: str, folder: Path) -> dict[str, int]:
    """The peak of each moment in a process of its own, in bytes; freed memory goes back at once."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(PEAK_OF), backend, "each", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    return {line[0]: int(line[1]) for line in lines if line[0] in peak_of.MOMENTS}


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("backend", ["torch", "deepspeed"])
def test_copies_of_all_weights_are_in_the_estimate(backend, tmp_path):
    # 35 M parameters: the weights once are 140 MB, and what else differs between the processes is little.
    peaks = measured(backend, tmp_path)
    assert set(peaks) == set(peak_of.MOMENTS)
    asked = TrainConfig(**peak_of.OPTIONS, backend=backend, monitor="fast")
    result = estimate(asked, peak_of.VOCABULARY, "cpu")
    for moment, peak in peaks.items():
        assert peak < 1.05 * result.total, (moment, peaks, str(result))
    assert max(peaks.values()) > 0.75 * result.total, (peaks, str(result))
    weights = 4 * peak_of.parameters()
    if backend == "torch":  # DeepSpeed's norm, in float64, is as large as the monitor's copy and gone by then
        assert peaks["monitor"] - peaks["backward"] > 0.8 * weights
    assert peaks["checkpoint"] - peaks["backward"] > 2 * weights, "weights and two states"


@pytest.mark.parametrize(
    ("changes", "device", "copies"),
    [
        ({"monitor": "fast", "monitor_every": 1}, "cpu", 1),
        ({"monitor": "fast", "monitor_every": 1}, "cuda", 1),
    ],
)
def test_the_monitor_s_copy_counts_where_it_is_the_largest_moment(changes, device, copies):
    asked = options("--size=medium", "--ranks=1", "--micro-batch=1", "--context=64", "--backend=torch")
    asked = dataclasses.replace(asked, valid_characters=0, optimizer="adamw", device=device)
    off, on = (
        estimate(dataclasses.replace(asked, **{**changes, "monitor": m}), 400, device)
        for m in ("off", "fast")
    )
    count = num_parameters(shape_of(asked), 400)
    grown = on.total - off.total
    assert 0 <= grown <= 1.1 * 4 * count
    if device == "cuda":  # nothing else is that large there: the export and the checkpoint are on the CPU
        assert grown > 0.7 * 4 * count
    rare = dataclasses.replace(asked, monitor="fast", monitor_every=asked.steps + 1)
    assert estimate(rare, 400, device).total == off.total, "a training that ends before its first look"


@pytest.mark.parametrize(
    ("capability", "changes", "path"),
    [
        ((9, 0), {"precision": "bf16"}, "varlen"),
        ((7, 5), {"precision": "bf16"}, "masked"),
        ((9, 0), {"precision": "fp32"}, "masked"),
        ((9, 0), {"precision": "bf16", "head_width": 36}, "masked"),
        ((9, 0), {"precision": "fp32", "packing": "one"}, "flash"),
    ],
)
def test_the_mask_counts_on_a_gpu_that_gets_masked_attention(monkeypatch, capability, changes, path):
    machine = Machine(gpus=1, capability=capability)
    monkeypatch.setattr("yanmo.train.memory.estimate.this_machine", lambda: machine)
    asked = dataclasses.replace(options("--size=large", "--ranks=1", "--device=cuda"), **changes)
    e = 2 if asked.precision == "bf16" else 4
    mask = asked.micro_rows * asked.context**2 * e
    plain = dataclasses.replace(asked, packing="one", attention="flash")
    grown = estimate(asked, 8192, "cuda").activations - estimate(plain, 8192, "cuda").activations
    # Where query heads share keys and values, nothing but varlen shares them in memory.
    o = asked
    copied = o.micro_rows * o.context * o.layers * 2 * (o.heads - o.kv_heads) * o.head_width * e
    assert grown == {"masked": mask, "flash": 0, "varlen": -copied}[path]


@pytest.mark.parametrize("targets", ["all", "q_proj,v_proj", "k_proj,o_proj,down_proj"])
def test_with_lora_only_the_adapter_has_gradients_and_states(targets):
    flags = ["--layers=3", "--width=96", "--heads=4", "--kv-heads=2", "--head-width=16", "--feed-forward=80"]
    flags += ["--optimizer=adamw", "--backend=deepspeed", "--tied-head=true", "--start=random"]
    asked = options(*flags, "--lora-rank=5", f"--lora-targets={targets}")
    decoder = Decoder(decoder_config(asked, 500))
    adapt(decoder, lora_of(asked), seed=0)
    every = sum(p.numel() for p in decoder.parameters())
    trained = sum(p.numel() for p in decoder.parameters() if p.requires_grad)
    assert parameters(asked, 500) == (every, trained)
    found = estimate(asked, 500, "cpu")
    assert (found.weights, found.gradients, found.optimizer) == (
        4 * every,
        2 * 4 * trained,
        8 * trained,
    )
    assert found.total < estimate(options(*flags), 500, "cpu").total


def test_a_model_that_goes_on_computes_all_logits_and_needs_no_other_order_of_the_head():
    flags = ["--frequent-tokens=100", "--start=random"]
    new, given = (options(*flags, *more) for more in ((), (f"--model=train/{64 * 'a'}",)))
    assert (
        estimate(given, 500, "cpu").total
        == estimate(dataclasses.replace(new, frequent_tokens=0), 500, "cpu").total
    )
    assert estimate(new, 500, "cpu").total > estimate(given, 500, "cpu").total
