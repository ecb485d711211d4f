"""What is left to the machine: decided once, recorded, and the same key wherever it is read."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import logging
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from config_file import written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import needs_affinity, one_cpu

from yanmo.common.errors import EnvironmentFault, UsageError
from yanmo.options.command_line import load_given
from yanmo.options.fields import by_kind, flag
from yanmo.stage.exporter import Telemetry
from yanmo.stage.run import main
from yanmo.stage.stage_run import StageRun, Steps
from yanmo.store.commit import Recipe, Result
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.tools.store.command import main as store_tool
from yanmo.train.backends import hardware as machine_module
from yanmo.train.backends.hardware import Machine, this_machine
from yanmo.train.config import STAGE, TrainConfig
from yanmo.train.options.recipe_options import SIZES
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


@pytest.fixture(params=["folder", "s3"])
def place(request, store, tmp_path, monkeypatch) -> str:
    """A store with a token cache: a folder, and a bucket where a server can be had."""
    if request.param == "folder":
        return str(store)
    server, bucket = request.getfixturevalue("s3_server"), request.getfixturevalue("s3_place")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "scratch"))
    uri = f"s3://{bucket}/{tmp_path.name}"
    target = open_store(uri)
    for path in sorted(store.rglob("*")):
        if path.is_file():
            target.create(str(path.relative_to(store)), path.read_bytes())
    return uri


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


@UNHURRIED
@given(
    cpus=st.lists(st.integers(1, 256), min_size=2, max_size=4),
    flags=st.fixed_dictionaries(
        {},
        optional={
            "device": st.sampled_from(["cpu", "auto"]),
            "precision": st.sampled_from(["fp32", "bf16"]),
            "backend": st.sampled_from(["torch", "deepspeed"]),
            "zero_stage": st.just("2"),
        },
    ),
)
def test_the_threads_of_the_first_start_are_kept_on_any_pod_and_are_in_no_key(
    store_template, tmp_path_factory, cpus, flags
) -> None:
    """Other numbers of threads give other last digits, so a training that goes on has those that it had."""
    if flags.get("backend") == "torch":
        flags.pop("zero_stage", None)
    here, found = str(tmp_path_factory.mktemp("shared")), []
    for count in cpus:
        run, refused = tried(str(store_template), here, Machine(cpus=count), flags)
        assert not refused
        found.append((run.options.threads, made_of(run)))
    alone = str(tmp_path_factory.mktemp("alone"))
    other, _ = tried(str(store_template), alone, Machine(cpus=257), flags)
    assert found == [(cpus[0], made_of(other))] * len(cpus) and other.options.threads == 257
    mine, _ = tried(str(store_template), here, Machine(cpus=cpus[-1]), flags | {"threads": "7"})
    assert mine.options.threads == 7 and made_of(mine) == made_of(other)


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
def test_every_other_machine_finds_the_key_of_the_first(place, first) -> None:
    assert train(place, first) == 0
    key, settled = made(place)
    (record,) = records(place).values()
    assert record["key"] == key and record["options"] == {"precision": settled["precision"]}
    assert Machine.from_facts(record["machine"]) == first
    for other in MACHINES:
        look = Asked(other)
        assert train(place, look) == 0
        assert made(place) == (key, settled) and look.times == 0, other
    assert len(records(place)) == 1


def test_the_memory_of_gpus_is_in_no_record_and_one_that_has_it_is_read_too(place) -> None:
    first = dataclasses.replace(ONE, memory=141 << 30)
    assert train(place, first) == 0
    (record,) = records(place).values()
    assert "memory" not in record["machine"] and Machine.from_facts(record["machine"]) == ONE
    assert Machine.from_facts(dataclasses.asdict(first)) == first
    assert train(place, NONE) == 0 and len(records(place)) == 1


def test_a_cpu_with_more_cpus_than_a_rank_may_have_threads_trains_at_the_defaults(store) -> None:
    assert settle(run_of(str(store)), Asked(Machine(cpus=768))).threads == 512


def test_what_a_person_gives_counts_and_a_wrong_number_of_ranks_is_not_remembered(store, capsys) -> None:
    place = str(store)
    assert train(place, ONE, "--ranks=8") == 78
    stderr = capsys.readouterr().err
    assert "this training is for 8 GPUs" in stderr and "--ranks 1" in stderr
    assert train(place, ONE) == 0
    assert made(place)[1]["ranks"] == 1
    assert train(place, NONE, "--precision=fp32", "--seed=4", "--ranks=1") == 0
    assert made(place)[1]["precision"] == "fp32" and made(place)[1]["ranks"] == 1


def test_a_machine_with_fewer_gpus_says_which_flags_go_on_there(place, capsys) -> None:
    run = run_of(place)
    settled = settle(run, Asked(EIGHT))
    assert (settled.ranks, settled.precision) == (8, "bf16")
    two = Machine(gpus=2, **H200)
    assert train(place, two) == 78
    stderr = capsys.readouterr().err
    assert "8 GPUs (device, ranks, threads, backend, attention, compile, precision as recorded" in stderr
    assert "shows 2; run the command where there are more; or go on here with --ranks 2" in stderr
    assert train(place, NONE) == 78
    stderr = capsys.readouterr().err
    assert "go on here with --device cpu --precision bf16" in stderr
    assert train(place, Machine(gpus=8, name="T4", capability=(7, 5), compiles=True)) == 78
    stderr = capsys.readouterr().err
    assert "--attention varlen: it needs a GPU of compute capability 8.0" in stderr
    assert "go on here with --attention masked" in stderr
    assert "--attention masked --compile false" not in stderr, "this one compiles"
    (record,) = records(place).values()
    assert train(place, two, "--ranks=2") == 0
    assert made(place)[0] == record["key"]
    assert made(place)[1] == {n: getattr(settled, n) for n in LEFT} | {"ranks": 2}


def test_a_gpu_that_is_asked_for_and_not_there_is_not_recorded_for_those_that_have_one(place, capsys) -> None:
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
    settle(run_of(str(store)), Asked(ONE))
    assert train(str(store), EIGHT) == 0
    assert "7 of 8 GPUs stay idle; --ranks 8 trains on more" in capsys.readouterr().err


def copy(place: str, target: str, pointer: str) -> None:
    assert store_tool(["cp", "--store", place, pointer, "--to", target, "--pointer", pointer]) == 0


def test_where_a_channel_was_copied_to_the_machine_there_decides(place, tmp_path) -> None:
    assert train(place, ONE) == 0
    target = str(tmp_path / "target")
    for pointer in ("dev/tokenize", "dev/train"):
        copy(place, target, pointer)
    assert not records(target), "records stay where they were made"
    look = Asked(ONE)
    assert train(target, look) == 0
    assert made(target) == made(place) and look.times == 1


TWO, NO_COMPILER = Machine(gpus=2, **H200), Machine(gpus=1, **H200 | {"compiles": False})
T4 = Machine(gpus=3, name="T4", capability=(7, 5), compiles=True)
RUNS = st.lists(
    st.tuples(
        st.sampled_from([*MACHINES, TWO, T4, NO_COMPILER]),
        st.fixed_dictionaries(
            {},
            optional={
                "ranks": st.sampled_from(["1", "2", "4"]),
                "micro_batch": st.sampled_from(["0", "1", "2", "6", "auto"]),
                "zero_stage": st.sampled_from(["1", "3"]),
                "offload": st.just("optimizer"),
                "gradient_checkpointing": st.just("true"),
                "attention": st.sampled_from(["varlen", "masked"]),
                "compile": st.sampled_from(["true", "false"]),
                "night": st.just("21:00-08:00"),
            },
        ),
    ),
    min_size=1,
    max_size=5,
)
ADVISED = re.compile(r"go on here with ((?:--[a-z-]+ \S+ ?)+)")


def tried(store: str, records_in: str, machine: Machine, flags: dict[str, str]) -> tuple[StageRun, str]:
    """A run up to where its training would begin: settled, and what it was refused for."""
    run = run_of(store, *(f"{flag(name)}={value}" for name, value in flags.items()))
    run.store = open_store(records_in)
    try:
        run.options = settle(run, lambda: machine)
        check_machine(run, lambda: machine)
    except EnvironmentFault as error:
        return run, str(error)
    return run, ""


@UNHURRIED
@given(
    runs=RUNS,
    asked=st.fixed_dictionaries(
        {"batch_rows": st.sampled_from(["8", "12"]), "packing": st.sampled_from(["one", "best-fit"])},
        optional={"device": st.just("cuda"), "precision": st.sampled_from(["fp32", "bf16", "fp16"])},
    ),
)
def test_whatever_ran_before_a_run_is_what_the_first_machine_would_have_made_of_it(
    store_template, tmp_path_factory, runs, asked
) -> None:
    """Options that enter the key are equal in all runs; machines and the other options are not."""
    here, store = str(tmp_path_factory.mktemp("shared")), str(store_template)
    first, keys, aside = None, set(), set()

    def of_these() -> dict[str, bytes]:
        return {name: data for name, data in records_of(here).items() if name not in aside}

    for machine, others in runs:
        flags = asked | others
        try:
            before = of_these()
            run, refused = tried(store, here, machine, flags)
        except UsageError:
            continue  # no machine can do this
        after = of_these()
        assert before in ({}, after), "a record never changes"
        if refused:
            assert before == after, "what cannot be is not recorded"
            advised = ADVISED.search(refused)
            assert advised, refused
            words = advised[1].split()
            more = {n[2:].replace("-", "_"): v for n, v in zip(words[::2], words[1::2], strict=True)}
            run, again = tried(store, here, machine, flags | more)
            assert not again, f"the advice of {refused!r} gives {again!r}"
            aside |= of_these().keys() - after.keys()  # `--device cpu` is a choice of its own
        if after and not before:
            first = machine
        if first is None:
            continue  # refused, and gone on as advised
        keys.add(made_of(run))
        if not refused:
            alone = str(tmp_path_factory.mktemp("alone"))
            expected, problem = tried(store, alone, first, flags)
            assert problem or run.options == expected.options
        if run.options.device == "cuda" and "compile" not in flags:
            plain = not {"zero_stage", "offload", "gradient_checkpointing"} & flags.keys()
            assert not run.options.compile or plain or flags.get("zero_stage") == "1"
    assert len(keys) <= 1
    assert len(of_these()) <= 1


def records_of(place: str) -> dict[str, bytes]:
    store = open_store(place)
    return {info.name: store.read(info.name)[0] for info in store.list("runs/train/auto")}


def test_a_record_in_the_place_of_another_is_refused(place, capsys) -> None:
    assert train(place, ONE) == 0
    assert train(place, ONE, "--seed=1") == 0
    store = open_store(place)
    one, two = records(place)
    data, version = store.read(one)
    store.replace(two, data, store.read(two)[1])
    store.replace(one, json.dumps(records(place)[one] | {"key": "1" * 64}).encode(), version)
    assert train(place, NONE) == 65 and train(place, NONE, "--seed=1") == 65
    stderr = capsys.readouterr().err
    assert "what it says makes" in stderr and "delete this record" in stderr


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
    assert look.times == 0 and not records(str(store))
    assert (settled.device, settled.ranks, settled.precision) == (device, 1, "fp32")
    settled = settle(run_of(str(store), f"--device={device}"), look)
    assert (settled.device, settled.ranks, settled.threads) == (device, 1, 64)
    (record,) = records(str(store)).values()
    assert record["machine"]["cpus"] == 64


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
def test_a_training_that_paused_on_a_cpu_goes_on_as_it_began_on_a_machine_with_gpus(store) -> None:
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
    began = {"device": "cpu", "ranks": 1, "threads": 3}
    assert {name: output.manifest.execution[name] for name in began} == began
    assert "ranks=1 threads=3 precision" in second.stderr
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


def test_what_auto_became_at_the_target_stays(place, tmp_path) -> None:
    target = str(tmp_path / "target")
    copy(place, target, "dev/tokenize")
    assert train(target, NONE) == 0 and train(place, ONE) == 0
    theirs = records(target)
    copy(place, target, "dev/train")
    assert records(target) == theirs and made(target)[0] == made(place)[0]
    assert train(target, EIGHT) == 0
    assert made(target)[0] == next(iter(theirs.values()))["key"]


RACER = """
import json, sys
from yanmo.options.command_line import load_given
from yanmo.options.fields import by_kind
from yanmo.stage.stage_run import StageRun
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.stage.exporter import Telemetry
from yanmo.train.backends.hardware import Machine
from yanmo.train.config import STAGE, TrainConfig
from yanmo.train.supervision.automatic import settle

uri, gpus = sys.argv[1:]

def look():
    print("looking", flush=True)
    sys.stdin.readline()  # until all have found no record
    return Machine(gpus=int(gpus), name="fake", capability=(9, 0), compiles=True)

options, given = load_given(TrainConfig, [f"--store={uri}"], "yanmo train")
store = open_store(uri)
cache = open_reference(store, read_pointer(store, "dev", "tokenize"))
run = StageRun(stage=STAGE, options=options, store=store, inputs={"token_cache": cache, "model": None},
    telemetry=Telemetry("train", STAGE.metrics), given=given)
print(json.dumps(by_kind(settle(run, look), "semantic", "execution")))
"""


@pytest.mark.process(few=1)
def test_of_machines_that_race_one_record_counts_for_all(place) -> None:
    """Processes, as two pods are: nothing but the store stands between them."""
    gpus = (0, 8, 1, 4, 2)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, place, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for count in gpus
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None and racer.stdout.readline() == "looking\n"
        assert not records(place)
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        found = [json.loads(racer.communicate()[0]) for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
    (record,) = records(place).values()
    assert all(one == found[0] for one in found)
    last = Asked(NONE)
    settled = by_kind(settle(run_of(place), last), "semantic", "execution")
    assert last.times == 0 and settled in found
    assert settled["precision"] == record["options"]["precision"]
    seen = record["machine"]["gpus"]
    assert (settled["device"], settled["ranks"]) == (("cuda", seen) if seen else ("cpu", 1))
