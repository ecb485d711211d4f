"""A DeepSpeed file of the user's is merged; what contradicts our options is refused by name."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.common.errors import UsageError
from yanmo.train.backends import zero_config
from yanmo.train.backends.zero_config import engine_config
from yanmo.train.config import TrainConfig


def merged(tmp_path, text: str, **options):
    path = tmp_path / "ds.json"
    path.write_text(text, encoding="utf-8")
    return engine_config(TrainConfig(deepspeed_config=str(path), **options))


def test_what_ours_does_not_say_is_taken_over(tmp_path):
    theirs = {
        "zero_optimization": {"stage": "auto", "reduce_bucket_size": 1000},
        "train_batch_size": 32,
        "gradient_accumulation_steps": 1,
        "wall_clock_breakdown": True,
    }
    found = merged(tmp_path, json.dumps(theirs))
    assert found["zero_optimization"] == {"stage": 1, "reduce_bucket_size": 1000}
    assert found["wall_clock_breakdown"] is True
    assert found["gradient_accumulation_steps"] == 1 and "train_batch_size" not in found


def usual_file(stage: int, offload: str) -> dict:
    """As in the documentation of transformers and accelerate, which fill in each `auto`."""
    device = {"device": offload} | ({"pin_memory": True} if offload == "cpu" else {})
    scaling = {"loss_scale": "auto", "loss_scale_window": "auto", "hysteresis": "auto"}
    return {
        "fp16": {"enabled": "auto", "auto_cast": False, **scaling, "initial_scale_power": 16},
        "bf16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "weight_decay": "auto"}},
        "scheduler": {"params": {"warmup_min_lr": "auto", "warmup_num_steps": "auto"}},
        "amp": {"enabled": False, "opt_level": "O1"},
        "zero_optimization": {
            "stage": stage,
            "offload_optimizer": device,
            "offload_param": {"device": "none", "pin_memory": True},
            "overlap_comm": True,
            "reduce_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
        },
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "steps_per_print": 2000,
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "wall_clock_breakdown": False,
    }


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("stage", "offload"), [(2, "none"), (3, "cpu")])
def test_the_usual_file_of_hugging_face_is_taken_with_ours_for_each_auto(tmp_path, precision, stage, offload):
    options = {"precision": precision, "optimizer": "adamw", "zero_stage": stage}
    if offload == "cpu":
        options |= {"offload": "optimizer", "device": "cuda"}
    options |= {"batch_rows": 32, "ranks": 1}
    found = merged(tmp_path, json.dumps(usual_file(stage, offload)), **options)
    ours = engine_config(TrainConfig(**options))
    ours["zero_optimization"]["overlap_comm"] = True
    assert found == ours | {"steps_per_print": 2000, "wall_clock_breakdown": False}
    assert "auto" not in json.dumps(found)


PATHS = st.lists(st.sampled_from([*zero_config._OURS, *zero_config._NEVER, "aio.block_size"]), max_size=6)


@given(PATHS, st.lists(st.sampled_from(["enabled", "params", "x"]), max_size=2))
@settings(max_examples=60, deadline=None)
def test_auto_is_ours_wherever_it_stands(paths, below):
    theirs: dict = {}
    for path in paths:
        place, (*above, last) = theirs, [*path.split("."), *below]
        for name in above:
            inner = place.get(name)
            place[name] = place = inner if isinstance(inner, dict) else {}
        place.setdefault(last, "auto")
    with tempfile.TemporaryDirectory() as folder:
        assert merged(Path(folder), json.dumps(theirs)) == engine_config(TrainConfig(batch_rows=32))


CONTRADICTIONS = [
    ({"zero_optimization": {"stage": 3}}, "--zero-stage"),
    ({"train_batch_size": 7}, "--batch-rows"),
    ({"bf16": {"enabled": True}}, "--precision"),
    ({"fp16": {"enabled": True}}, "--precision"),
    ({"optimizer": {"type": "Adam"}}, "--optimizer"),
    ({"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}, "--optimizer"),
    ({"gradient_clipping": 0.3}, "--clip"),
    ({"train_micro_batch_size_per_gpu": 7}, "--micro-batch"),
    ({"gradient_accumulation_steps": 7}, "--batch-rows and --micro-batch"),
    ({"scheduler": {"type": "WarmupLR"}}, "--schedule"),
    ({"torch_autocast": {"enabled": True}}, "--precision"),
    ({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}, "--offload"),
    ({"managed_gradient_accumulation": True}, "accumulation"),
    ({"zero_optimization": {"zero_hpz_partition_size": 2}}, "zero_hpz_partition_size"),
    ({"activation_checkpointing": {"cpu_checkpointing": True}}, "--gradient-checkpointing"),
    ({"checkpoint": {"load_universal": True}}, "checkpoints are in our own format"),
    ({"zero_optimization": {"offload_param": {"device": "cpu"}}}, "offload_param"),
    ({"amp": {"enabled": True}}, "--precision"),
    ({"communication_data_type": "bf16"}, "reduced in fp32"),
]


@pytest.mark.parametrize(("theirs", "word"), CONTRADICTIONS)
def test_a_contradiction_is_refused_by_name(theirs, word, tmp_path):
    with pytest.raises(UsageError, match=word):
        merged(tmp_path, json.dumps(theirs))


def test_each_key_that_an_option_decides_was_contradicted_above():
    def names(theirs: dict) -> str:
        ((name, value),) = theirs.items()
        return f"{name}.{next(iter(value))}" if name == "zero_optimization" else name

    assert {names(theirs) for theirs, _ in CONTRADICTIONS} == {*zero_config._OURS, *zero_config._NEVER}


@pytest.mark.parametrize(
    "theirs",
    [
        {"data_types": {"grad_accum_dtype": "bf16"}},
        {"zero_allow_untested_optimizer": False},
        {"zero_optimization": 3},
        {"zero_force_ds_cpu_optimizer": True},
    ],
)
def test_what_the_engine_rests_on_cannot_be_taken_from_under_it(theirs, tmp_path):
    with pytest.raises(UsageError, match="the engine needs"):
        merged(tmp_path, json.dumps(theirs))
    assert merged(tmp_path, '{"steps_per_print": 5}')["steps_per_print"] == 5


@pytest.mark.usefixtures("one_rank")
def test_what_deepspeed_itself_refuses_is_the_users_to_mend(tmp_path, tiny):
    from yanmo.model.decoder import Decoder
    from yanmo.train.backends.plain import open_engine
    from yanmo.train.models.first_decoder import decoder_config

    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"reduce_bucket_size": "many"}}', encoding="utf-8")
    options = TrainConfig(**{**tiny, "deepspeed_config": str(path)})
    with pytest.raises(UsageError, match=r"(?s)DeepSpeed refuses it.*reduce_bucket_size"):
        open_engine(Decoder(decoder_config(options, 60)), options, "cpu")


@pytest.mark.parametrize("text", ["{", "[]", ""])
def test_a_file_that_is_no_object_is_refused(text, tmp_path):
    with pytest.raises(UsageError, match="--deepspeed-config"):
        merged(tmp_path, text)
    with pytest.raises(UsageError, match="expected a JSON object in a file: no such file"):
        engine_config(TrainConfig(deepspeed_config=str(tmp_path / "none.json")))


def test_the_bucket_is_no_larger_than_the_gradient_unless_the_file_says_so(tmp_path):
    made = engine_config(TrainConfig())
    zero_config.fit_buckets(made, 4_300_000, 2)
    assert made["zero_optimization"]["reduce_bucket_size"] == 4_300_000
    large = engine_config(TrainConfig())
    zero_config.fit_buckets(large, 7_000_000_000, 2)
    assert large["zero_optimization"]["reduce_bucket_size"] == 500_000_000
    said = {"reduce_bucket_size": 1000, "reduce_scatter": True, "contiguous_gradients": True}
    theirs = merged(tmp_path, json.dumps({"zero_optimization": said}))
    zero_config.fit_buckets(theirs, 4_300_000, 1, in_place=True)
    assert theirs["zero_optimization"] == {"stage": 1, **said}


@pytest.mark.parametrize(
    ("ranks", "stage", "scatters"), [(1, 1, False), (1, 2, False), (1, 3, True), (2, 1, True)]
)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_one_rank_scatters_nothing_and_in_fp32_copies_nothing(ranks, stage, scatters, precision):
    options = TrainConfig(zero_stage=stage, precision=precision, backend="deepspeed")
    made = engine_config(options)
    zero_config.fit_buckets(made, 10, ranks, options.updates_in_place)
    assert made["zero_optimization"].get("reduce_scatter", True) is scatters
    copies = scatters or precision != "fp32"
    assert made["zero_optimization"].get("contiguous_gradients", True) is copies


def test_workers_that_start_again_with_less_keep_the_file(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text(
        json.dumps({"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"overlap_comm": True}})
    )
    halved = TrainConfig(deepspeed_config=str(path), batch_rows=16, ranks=2, micro_batch=4)
    with pytest.raises(UsageError, match="sets train_micro_batch_size_per_gpu to 8, but it is 4"):
        engine_config(halved)
    made = engine_config(halved, check_batch=False)
    assert made["train_micro_batch_size_per_gpu"] == 4 and made["zero_optimization"]["overlap_comm"] is True
