"""What is left to the machine: decided at each start, the precision for the key."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import logging
import signal
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import needs_affinity, one_cpu

from yanmo.common.errors import EnvironmentFault
from yanmo.options.command_line import load_given
from yanmo.options.fields import by_kind
from yanmo.stage.exporter import Telemetry
from yanmo.stage.run import main
from yanmo.stage.stage_run import StageRun, Steps
from yanmo.store.commit import Recipe, Result
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train.backends import hardware as machine_module
from yanmo.train.backends.hardware import Machine, this_machine
from yanmo.train.config import STAGE, TrainConfig
from yanmo.train.options.sizes import SIZES
from yanmo.train.supervision.automatic import LEFT, check_machine, decide, settle

H200 = {"name": "NVIDIA H200", "capability": (9, 0), "has_varlen": True, "compiles": True}
NONE, ONE, EIGHT = Machine(cpus=3), Machine(cpus=12, gpus=1, **H200), Machine(cpus=64, gpus=8, **H200)
V100 = Machine(gpus=1, name="V100", capability=(7, 0), has_varlen=True, compiles=True)
MACHINES = [NONE, ONE, EIGHT, V100]
ON_A_CPU = {
    "device": "cpu",
    "precision": "fp32",
    "ranks": 1,
    "threads": 3,
    "backend": "torch",
    "compile": False,
    "attention": "auto",
}
UNHURRIED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Asked:
    """A machine that counts how often it was looked at."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.times = machine, 0

    def __call__(self) -> Machine:
        self.times += 1
        return self.machine


def work(run: StageRun, look=None) -> Result:
    """The border of the real work, without the training behind it."""
    check_machine(run, look)
    run.attempt.write("said.json", json.dumps({n: getattr(run.options, n) for n in LEFT}))
    return Result(counts={})


def train(place: str, machine: Machine | Asked, *flags: str) -> int:
    """`yanmo train` on a machine; returns the exit code."""
    look = machine if isinstance(machine, Asked) else Asked(machine)
    before = signal.getsignal(signal.SIGTERM)
    try:
        argv = [f"--store={place}", "--metrics-port=-1", *flags]
        steps = Steps(functools.partial(work, look=look), settle=functools.partial(settle, look=look))
        return main(STAGE, steps, argv)
    finally:
        signal.signal(signal.SIGTERM, before)


def made(place: str) -> tuple[str, dict]:
    """Key and settled options of the newest model."""
    store = open_store(place)
    found = open_reference(store, read_pointer(store, "dev", "train"))
    return found.manifest.key, json.loads(found.path("said.json").read_text(encoding="utf-8"))


def made_of(run: StageRun) -> str:
    """The key of the output that a run's options make."""
    inputs = {"token_cache": run.inputs["token_cache"], "model": None}
    return Recipe(
        stage="train", revision=STAGE.revision, semantic=by_kind(run.options, "semantic"), inputs=inputs
    ).key


def run_of(place: str, *flags: str) -> StageRun:
    """What the stage hands to `settle`."""
    options, names = load_given(TrainConfig, [f"--store={place}", *flags], "yanmo train")
    store = open_store(place)
    cache = open_reference(store, read_pointer(store, "dev", "tokenize"))
    return StageRun(
        stage=STAGE,
        options=options,
        store=store,
        inputs={"token_cache": cache, "model": None},
        telemetry=Telemetry("train", STAGE.metrics),
        given=names,
    )


CAPABILITY = st.sampled_from([(6, 0), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)])


@UNHURRIED
@given(
    machine=st.builds(
        Machine,
        gpus=st.integers(1, 16),
        name=st.just("a GPU"),
        capability=CAPABILITY,
        has_varlen=st.booleans(),
        compiles=st.booleans(),
    ),
    rows=st.integers(1, 64),
    micro=st.sampled_from(["0", "1", "2", "3", "auto"]),
    head=st.sampled_from([16, 36, 64, 128, 256]),
    one=st.booleans(),
    frugal=st.sampled_from(["", "--gradient-checkpointing", "--zero-stage=3", "--offload=optimizer"]),
)
def test_a_gpu_gets_what_a_person_with_one_wants(
    store_template, machine, rows, micro, head, one, frugal
) -> None:
    flags = [f"--batch-rows={rows}", f"--head-width={head}", f"--packing={'one' if one else 'best-fit'}"]
    if micro == "auto" or int(micro) == 0 or rows % int(micro) == 0:
        flags.append(f"--micro-batch={micro}")
    run = run_of(str(store_template), *flags, *([frugal] if frugal else []))
    found = decide(run, machine)
    assert found["device"] == "cuda"
    of_16_bits = "bf16" if machine.capability >= (8, 0) else "fp16"
    assert found["precision"] == (of_16_bits if machine.capability >= (7, 0) else "fp32")
    fits = [
        n
        for n in range(1, machine.gpus + 1)
        if rows % n == 0 and (run.options.micro_batch <= 0 or rows // n % run.options.micro_batch == 0)
    ]
    assert found["ranks"] == max(fits)
    assert found["compile"] == (machine.compiles and machine.capability >= (7, 0) and not frugal)
    fits_varlen = machine.has_varlen and machine.capability >= (8, 0) and head % 8 == 0
    fits_varlen &= head <= 192 or machine.capability not in ((8, 6), (12, 0))
    has_cudnn = machine.capability[0] in (9, 10) and head % 8 == 0 and head <= 128
    plain = "flash" if one else "masked"
    assert found["attention"] == ("varlen" if fits_varlen and not (one and has_cudnn) else plain)
    alone = found["ranks"] == 1 and frugal not in ("--zero-stage=3", "--offload=optimizer")
    assert found["backend"] == ("torch" if alone else "deepspeed")
    TrainConfig(
        **{**{f: getattr(run.options, f) for f in by_kind(run.options, "semantic", "execution")}, **found}
    )


@UNHURRIED
@given(rows=st.integers(1, 64), micro=st.sampled_from([0, 1, 2, 4]), cpus=st.integers(1, 256))
def test_a_cpu_trains_with_one_rank_of_a_thread_for_each_that_it_may_use(
    store_template, rows, micro, cpus
) -> None:
    if micro and rows % micro:
        return
    run = run_of(str(store_template), f"--batch-rows={rows}", f"--micro-batch={micro}")
    assert decide(run, Machine(cpus=cpus)) == ON_A_CPU | {"threads": cpus}


@pytest.mark.parametrize(
    ("flags", "threads", "backend"),
    [
        ((), 3, "torch"),
        (("--ranks=2",), 1, "deepspeed"),
        (("--nnodes=2", "--rendezvous=node-0:29500"), 1, "deepspeed"),
        (("--zero-stage=2",), 3, "deepspeed"),
        (("--deepspeed-config=mine.json",), 3, "deepspeed"),
        (("--ranks=2", "--backend=torch"), 1, "torch"),
        (("--ranks=2", "--threads=5"), 5, "deepspeed"),
        (("--threads=4",), 4, "torch"),
        (("--backend=deepspeed",), 3, "deepspeed"),
    ],
)
@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_threads_and_engine_of_a_cpu_follow_from_its_ranks(store, flags, threads, backend, device) -> None:
    settled = settle(run_of(str(store), f"--device={device}", *flags), Asked(NONE))
    assert (settled.device, settled.threads, settled.backend) == ("cpu", threads, backend)


def test_a_mac_needs_no_flag_but_its_device(store) -> None:
    settled = settle(run_of(str(store), "--device=mps"), Asked(NONE))
    assert (settled.ranks, settled.backend) == (1, "torch")


def test_the_demos_options_on_a_cpu_are_the_defaults_of_the_class_and_of_size_tiny(store) -> None:
    settled = settle(run_of(str(store), "--steps=750"), Asked(NONE))
    plain = TrainConfig(**SIZES["tiny"], steps=750)
    assert by_kind(settled, "semantic") == by_kind(plain, "semantic")
    of_a_cpu = {"device": "cpu", "threads": 3, "backend": "torch"}
    assert by_kind(settled, "execution") == by_kind(plain, "execution") | of_a_cpu
    assert [type(v) for v in by_kind(settled, "semantic").values()] == [
        type(v) for v in by_kind(plain, "semantic").values()
    ]
    assert (settled.ranks, settled.precision) == (1, "fp32")


def test_what_a_person_gives_counts(store, capsys) -> None:
    place = str(store)
    assert train(place, ONE, "--ranks=8") == 78
    stderr = capsys.readouterr().err
    assert "this training is for 8 GPUs" in stderr and "--ranks 1" in stderr
    assert train(place, ONE) == 0
    assert made(place)[1]["ranks"] == 1
    assert train(place, NONE, "--precision=fp32", "--seed=4", "--ranks=1") == 0
    assert made(place)[1]["precision"] == "fp32" and made(place)[1]["ranks"] == 1


def test_a_committed_model_is_found_where_the_gpu_that_made_it_is_not(store) -> None:
    """The key is what was given, precision and all: there is nothing to make, so nothing to refuse."""
    asked = ("--device=cuda", "--precision=bf16")
    settle(run_of(str(store)), Asked(ONE))
    assert train(str(store), NONE, "--device=cpu", "--precision=bf16") == 0
    key = made(str(store))[0]
    assert train(str(store), NONE, *asked) == 0 and made(str(store))[0] == key
    assert train(str(store), NONE, *asked, "--force") == 78


def test_the_precision_is_all_of_a_machine_that_is_in_the_key(store) -> None:
    keys = {}
    for machine in (*MACHINES, Machine(cpus=7)):
        run = run_of(str(store))
        run.options = settle(run, Asked(machine))
        keys.setdefault(run.options.precision, set()).add(made_of(run))
        given = run_of(str(store), "--precision=fp32")
        given.options = settle(given, Asked(machine))
        keys.setdefault("fp32", set()).add(made_of(given))
    assert keys.keys() == {"fp32", "bf16", "fp16"} and all(len(one) == 1 for one in keys.values())


def test_a_machine_that_lacks_something_says_which_flags_go_on_there(store, capsys) -> None:
    place, asked = str(store), ("--device=cuda", "--precision=bf16", "--ranks=8", "--compile=true")
    assert train(place, Machine(gpus=2, **H200), *asked) == 78
    stderr = capsys.readouterr().err
    assert "for 8 GPUs, and this machine shows 2; run the command where there are more; or go on" in stderr
    assert "go on here with --ranks 2" in stderr
    assert train(place, NONE, *asked, "--attention=varlen") == 78
    stderr = capsys.readouterr().err
    assert "go on here with --device cpu --precision bf16 --attention masked" in stderr
    t4 = Machine(gpus=8, name="T4", capability=(7, 5), has_varlen=True, compiles=True)
    assert train(place, t4, *asked, "--attention=varlen") == 78
    stderr = capsys.readouterr().err
    assert "--attention varlen: it needs a GPU of compute capability 8.0" in stderr
    assert "go on here with --attention masked" in stderr
    assert "--attention masked --compile false" not in stderr, "this one compiles"
    assert train(place, Machine(gpus=2, **H200), *asked, "--ranks=2") == 0
    assert made(place)[1]["ranks"] == 2


def test_idle_gpus_are_reported(store, capsys) -> None:
    assert train(str(store), EIGHT, "--ranks=1") == 0
    assert "7 of 8 GPUs stay idle; --ranks 8 trains on more" in capsys.readouterr().err


def test_a_contradiction_is_reported_with_what_auto_became(store, capsys) -> None:
    assert train(str(store), NONE, "--offload=optimizer") == 78
    stderr = capsys.readouterr().err
    assert "--offload optimizer needs a GPU" in stderr
    assert "chosen automatically: device=cpu ranks=1" in stderr


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_off_cuda_threads_are_all_that_is_left_to_the_machine(store, device) -> None:
    look = Asked(EIGHT)
    settled = settle(run_of(str(store), f"--device={device}", "--threads=2"), look)
    assert look.times == 0
    assert (settled.device, settled.ranks, settled.precision) == (device, 1, "fp32")
    settled = settle(run_of(str(store), f"--device={device}"), look)
    assert (settled.device, settled.ranks, settled.threads) == (device, 1, 64)


def test_a_benchmark_tries_compiling_and_attention_itself(store) -> None:
    run = run_of(str(store), "--benchmark")
    found = settle(run, Asked(EIGHT))
    assert (found.ranks, found.device, found.precision) == (8, "cuda", "bf16")
    assert (found.compile, found.attention) == (False, "auto"), "it tries these itself"
    assert settle(run, Asked(NONE)).ranks == 1


@needs_affinity
def test_a_machine_without_device_files_is_not_asked_through_torch(monkeypatch) -> None:
    monkeypatch.setattr(machine_module, "gpu_files", list)
    monkeypatch.setattr(machine_module.subprocess, "run", None)
    with one_cpu():
        assert this_machine.__wrapped__() == Machine(cpus=1)


def test_torch_is_asked_in_a_process_of_its_own_where_a_device_file_is(monkeypatch, caplog) -> None:
    """Here torch sees none behind it, which is said; a torch that cannot be asked is no CPU."""
    monkeypatch.setattr(machine_module, "gpu_files", lambda: ["/dev/nvidia0"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    logging.getLogger(machine_module.__name__).addHandler(caplog.handler)
    assert this_machine.__wrapped__().gpus == 0
    logging.getLogger(machine_module.__name__).removeHandler(caplog.handler)
    assert "/dev/nvidia0 exists, but torch sees no GPU" in caplog.text
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(EnvironmentFault, match=r"/dev/nvidia0 exists, but .* or give --device cpu"):
        this_machine.__wrapped__()


@pytest.fixture
def without_deepspeed(monkeypatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "deepspeed" else find(name))


def test_where_deepspeed_is_not_installed_torch_trains_and_the_key_is_the_same(
    store, without_deepspeed, monkeypatch
) -> None:
    options = settle(run_of(str(store), "--ranks=2"), Asked(NONE))
    assert options == settle(run_of(str(store), "--ranks=2", "--backend=torch"), Asked(NONE))
    monkeypatch.undo()
    with_it = settle(run_of(str(store), "--ranks=2"), Asked(NONE))
    assert with_it == dataclasses.replace(options, backend="deepspeed")
    assert (options.backend, by_kind(options, "semantic")) == (
        "torch",
        by_kind(settle(run_of(str(store)), Asked(NONE)), "semantic"),
    )


@pytest.mark.parametrize("flags", [["--backend=deepspeed"], ["--zero-stage=2"]])
def test_what_needs_deepspeed_says_so_where_it_is_not_installed(
    store, without_deepspeed, capsys, flags
) -> None:
    assert train(store, NONE, *flags) == 78
    said = capsys.readouterr().err
    assert flags[0].replace("=", " ") in said and "--backend torch trains here" in said
