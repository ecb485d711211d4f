"""What is left to the machine: decided once, recorded, and the same key wherever it is read."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from config_file import written
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
from yanmo.train.supervision.automatic import decide, settle
from yanmo.train.supervision.machine_check import LEFT, check_machine

H200 = {"name": "NVIDIA H200", "capability": (9, 0), "compiles": True}
NONE, ONE, EIGHT = Machine(cpus=3), Machine(cpus=12, gpus=1, **H200), Machine(cpus=64, gpus=8, **H200)
V100 = Machine(gpus=1, name="V100", capability=(7, 0), compiles=True)
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
SMALL = ("--layers=1", "--width=32", "--heads=2", "--kv-heads=1", "--head-width=16", "--feed-forward=48")


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


def records(place: str) -> dict[str, dict]:
    store = open_store(place)
    names = [info.name for info in store.list("runs/train/auto")]
    return {name: json.loads(store.read(name)[0]) for name in names}


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
    fits_varlen = machine.capability >= (8, 0) and head % 8 == 0
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


@pytest.mark.parametrize("first", MACHINES, ids=str)
def test_every_other_machine_finds_the_key_of_the_first(store, first) -> None:
    """What is in no key, such as the ranks, follows from the machine at hand."""
    place = str(store)
    assert train(place, first) == 0
    key, settled = made(place)
    (record,) = records(place).values()
    assert record["key"] == key
    assert record["options"] == {name: settled[name] for name in ("precision", "device")}
    for other in MACHINES:
        found = settle(run_of(place), Asked(other))
        assert (found.precision, found.device) == (settled["precision"], settled["device"]), other
        assert found.ranks == (max(other.gpus, 1) if found.device == "cuda" else 1)
        assert train(place, other) == 0 and made(place) == (key, settled), "there is nothing to make"
    assert len(records(place)) == 1


def test_a_training_that_began_on_a_gpu_is_not_trained_without_one_by_itself(store, capsys) -> None:
    settle(run_of(str(store)), Asked(EIGHT))
    assert train(str(store), NONE) == 78
    stderr = capsys.readouterr().err
    assert "this training is for 1 GPU, and this machine shows none" in stderr
    assert "go on here with --device cpu --precision bf16" in stderr
    assert train(str(store), Machine(gpus=3, name="T4", capability=(7, 5), compiles=True)) == 0
    assert (made(str(store))[1]["precision"], made(str(store))[1]["attention"]) == ("bf16", "masked")


def test_what_a_person_gives_counts_and_a_wrong_number_of_ranks_is_not_remembered(store, capsys) -> None:
    place = str(store)
    assert train(place, ONE, "--ranks=8") == 78
    stderr = capsys.readouterr().err
    assert "this training is for 8 GPUs" in stderr and "--ranks 1" in stderr
    assert train(place, ONE) == 0
    assert made(place)[1]["ranks"] == 1
    assert train(place, NONE, "--precision=fp32", "--seed=4", "--ranks=1") == 0
    assert made(place)[1]["precision"] == "fp32" and made(place)[1]["ranks"] == 1


def test_a_gpu_that_is_asked_for_and_not_there_is_not_recorded_for_those_that_have_one(store, capsys) -> None:
    place = str(store)
    assert train(place, NONE, "--device=cuda") == 78
    stderr = capsys.readouterr().err
    assert "this training is for 1 GPU, and this machine shows none" in stderr
    assert "go on here with --device cpu --precision fp32" in stderr
    assert not records(place)
    assert train(place, ONE, "--device=cuda") == 0
    assert made(place)[1] == {
        "device": "cuda",
        "precision": "bf16",
        "ranks": 1,
        "threads": 1,
        "backend": "torch",
        "compile": True,
        "attention": "varlen",
    }


def test_a_committed_model_is_found_where_the_gpu_that_made_it_is_not(store) -> None:
    """The key is what was given, precision and all: there is nothing to make, so nothing to refuse."""
    asked = ("--device=cuda", "--precision=bf16")
    settle(run_of(str(store)), Asked(ONE))
    assert train(str(store), NONE, "--device=cpu", "--precision=bf16") == 0
    key = made(str(store))[0]
    assert train(str(store), NONE, *asked) == 0 and made(str(store))[0] == key
    assert train(str(store), NONE, *asked, "--force") == 78


def test_idle_gpus_are_reported(store, capsys) -> None:
    assert train(str(store), EIGHT, "--ranks=1") == 0
    assert "7 of 8 GPUs stay idle; --ranks 8 trains on more" in capsys.readouterr().err


def test_of_two_machines_that_look_at_once_one_record_counts_for_both(store) -> None:
    def look() -> Machine:
        """Meanwhile another machine, which has found no record either, is faster."""
        settle(run_of(str(store)), Asked(V100))
        return NONE

    found = settle(run_of(str(store)), look)
    assert (found.device, found.precision) == ("cuda", "fp16") and len(records(str(store))) == 1


def test_a_damaged_record_says_how_to_replace_it(store, capsys) -> None:
    settle(run_of(str(store)), Asked(ONE))
    opened = open_store(str(store))
    ((name, record),) = records(str(store)).items()
    broken = json.dumps(record | {"options": {"precision": "fp8", "device": "cuda"}}).encode()
    opened.replace(name, broken, opened.read(name)[1])
    assert train(str(store), ONE) == 65
    assert "delete this record" in capsys.readouterr().err


def test_a_contradiction_is_reported_with_what_auto_became(store, capsys) -> None:
    assert train(str(store), NONE, "--offload=optimizer") == 78
    stderr = capsys.readouterr().err
    assert "--offload optimizer needs a GPU" in stderr
    assert "chosen automatically: device=cpu ranks=1" in stderr
    assert not records(str(store)), "what cannot be is not recorded"


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_off_cuda_threads_are_all_that_is_left_to_the_machine(store, device) -> None:
    look = Asked(EIGHT)
    settled = settle(run_of(str(store), f"--device={device}", "--threads=2"), look)
    assert look.times == 0 and (settled.device, settled.ranks, settled.precision) == (device, 1, "fp32")
    settled = settle(run_of(str(store), f"--device={device}"), look)
    assert (settled.device, settled.ranks, settled.threads) == (device, 1, 64)
    assert not records(str(store)), "nothing of the key was left open"


def test_a_benchmark_asks_the_machine_and_records_nothing(store) -> None:
    run = run_of(str(store), "--benchmark")
    found = settle(run, Asked(EIGHT))
    assert (found.ranks, found.device, found.precision) == (8, "cuda", "bf16")
    assert (found.compile, found.attention) == (False, "auto"), "it tries these itself"
    assert settle(run, Asked(NONE)).ranks == 1
    assert not records(str(store))


@needs_affinity
def test_a_machine_without_device_files_is_not_asked_through_torch(monkeypatch) -> None:
    monkeypatch.setattr(machine_module, "gpu_files", list)
    monkeypatch.setattr(machine_module.subprocess, "run", None)
    with one_cpu():
        assert this_machine.__wrapped__() == Machine(cpus=1)


@pytest.mark.long
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


PROGRAM = """
import functools, sys
from yanmo.stage.run import run
from yanmo.stage.stage_run import Steps
from yanmo.train.backends.hardware import Machine
from yanmo.train.config import STAGE
from yanmo.train.supervision.automatic import settle
from yanmo.train.supervision.supervisor import prepare, work
from yanmo.train.supervision.committed import forget

gpus = int(sys.argv.pop(1))
gpu = {"gpus": gpus, "name": "fake"}
look = lambda: Machine(cpus=3 + gpus, **gpu, capability=(9, 0), compiles=False)
seen = [functools.partial(one, look=look) for one in (work, settle)]
run(STAGE, Steps(*seen, prepare=prepare, finish=forget))
"""


@pytest.mark.process
def test_a_training_that_paused_on_a_cpu_goes_on_there_on_a_machine_with_gpus(store) -> None:
    """Two real processes; only what they see of GPUs is made up."""
    flags = [*SMALL, "--context=32", "--batch-rows=32", "--start=random"]
    flags += ["--log-every=1", f"--store={store}", "--metrics-port=-1", "--backend=torch"]

    def start(gpus: int, *more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, str(gpus), *flags, *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=600)

    first = start(0, "--max-seconds=0.05")
    assert first.returncode == 0 and "auto: device=cpu ranks=1 threads=3" in first.stderr, first.stderr
    assert "decided here (no GPU, 3 CPUs)" in first.stderr
    assert "--steps 50: the text of" in first.stderr, "nobody gave them"
    assert "ranks=1 threads=3 precision" in first.stderr, "what the worker says that it does"
    (folder,) = [p for p in Path(store).glob("runs/train/*") if p.name != "auto"]
    second = start(8)
    assert second.returncode == 0 and "as recorded in" in second.stderr, second.stderr
    opened = open_store(str(store))
    output = open_reference(opened, read_pointer(opened, "dev", "train"))
    assert output.manifest.key == folder.name
    assert output.manifest.counts["steps"] == 50
    assert (output.manifest.execution["device"], output.manifest.execution["ranks"]) == ("cpu", 1)
    (record,) = records(str(store)).values()
    assert record["key"] == folder.name
    third = start(1)
    assert third.returncode == 0 and "is committed already" in third.stderr, third.stderr


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


def test_options_and_inputs_as_given_are_what_a_record_is_of(store) -> None:
    """What is the default anyway is the same; another seed or a preset's is not."""
    place = str(store)
    keys = {}
    for name, flags in {
        "plain": (),
        "the default said": ("--schedule=linear",),
        "auto said": ("--precision=auto", "--ranks=", "--device=auto"),
        "an execution option": ("--threads=3", "--ranks=1", "--compile=false"),
        "another seed": ("--seed=1",),
        "by the file": (f"--config={written('seed: 1')}",),
    }.items():
        assert train(place, ONE, *flags) == 0
        keys[name] = made(place)[0]
    assert keys["plain"] == keys["the default said"] == keys["auto said"] == keys["an execution option"]
    assert keys["another seed"] == keys["by the file"] != keys["plain"]
    assert len(records(place)) == 2
