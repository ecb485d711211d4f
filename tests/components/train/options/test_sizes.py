"""Sizes and presets: what they stand for, and who wins."""

from __future__ import annotations

import pytest

from yanmo.model.decoder import Decoder
from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig
from yanmo.train.memory.estimate import estimate, largest_that_fits
from yanmo.train.options.machine_options import AUTO
from yanmo.train.options.recipe_options import PRESETS, SIZES, num_parameters, preset_names, shape_of


def options(*flags: str) -> TrainConfig:
    return load(TrainConfig, list(flags), "yanmo train")


@pytest.mark.parametrize(
    ("size", "millions"), [("tiny", 4.3), ("small", 39.9), ("medium", 108.6), ("large", 344.0)]
)
def test_a_size_has_the_parameters_that_it_says(size, millions):
    assert abs(num_parameters(shape_of(options("--size", size)), 8192) / 1e6 - millions) < 0.06


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_counted_as_the_decoder_has_them(tied):
    from yanmo.train.models.decoders import decoder_config

    asked = options("--start=random", f"--tied-head={tied}", "--heads=4", "--kv-heads=2", "--layers=2")
    count = sum(p.numel() for p in Decoder(decoder_config(asked, 77)).parameters())
    assert num_parameters(shape_of(asked), 77) == count


def test_flags_win_over_files_over_presets_over_sizes_over_defaults(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("size: small\nlayers: 5\nsteps: 7\nwarmup_steps: 2\n", encoding="utf-8")
    config = tmp_path / "config.yaml"
    config.write_text("steps: 9\n", encoding="utf-8")
    by_preset = options(f"--preset={path}")
    assert (by_preset.width, by_preset.layers, by_preset.steps) == (512, 5, 7)
    assert options(f"--preset={path}", f"--config={config}").steps == 9
    assert options(f"--preset={path}", f"--config={config}", "--steps=11").steps == 11
    assert options(f"--preset={path}", "--size=medium").width == 768
    assert options("--size=small", "--width=64").width == 64
    assert options().width == 192


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_can_be_taken_with_every_size(name):
    for size in SIZES:
        chosen = options(f"--preset={name}", f"--size={size}", "--steps=100")
        assert chosen.preset == name


@pytest.mark.parametrize("name", [name for name in preset_names() if name.startswith("gpu-")])
def test_a_gpu_preset_fits_the_size_that_it_names_into_its_memory_and_no_larger_one(name):
    text = (PRESETS / f"{name}.yaml").read_text(encoding="utf-8")
    named = text.split("`")[1] if "`" in text else "large"  # "everything fits"
    for number, size in enumerate(SIZES):
        chosen = options(f"--preset={name}", f"--size={size}", "--precision=bf16")
        assert f"gpu-{chosen.memory_gib:g}gb" == name
        rows = largest_that_fits(chosen, 8192, "cuda")
        fits = estimate(chosen, 8192, "cuda", rows).total <= 0.92 * chosen.memory_gib * 2**30
        assert fits == (number <= list(SIZES).index(named)), (size, rows)


def test_the_micro_batch_can_be_a_word():
    assert options("--micro-batch=auto").micro_batch == AUTO
    assert options("--micro-batch=4").micro_rows == 4
