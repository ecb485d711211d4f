"""The whole stage as a user starts it: processes, signals, kills, exit codes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import fields_of
from training_runs import begun, command, losses_of, model_of, stage, wait_for

from yanmo.common.errors import EnvironmentFault
from yanmo.formats.token_cache import TokenCache
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train.checkpoints.checkpoint import step_of
from yanmo.train.config import TrainConfig
from yanmo.train.memory.fitting import check_space
from yanmo.train.options.recipe_options import num_parameters, shape_of
from yanmo.train.supervision.supervisor import _sinks


def processes_of(folder: Path) -> list[int]:
    """Process ids of the workers of a run (Linux)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().decode()
        except OSError:
            continue
        if "yanmo.train.worker" in text and str(folder) in text:
            found.append(int(path.parent.name))
    return found


@pytest.fixture
def no_dynamo(tmp_path, faults) -> dict[str, str]:
    """An environment in which a worker that imports torch._dynamo, a second more of each start, fails."""
    site = faults.install(tmp_path / "site", "faults.refuse_import('torch._dynamo')")
    return {**os.environ, "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}"}


@pytest.mark.process
def test_two_ranks_without_a_compiler_train_a_model_that_transformers_loads(
    store, trained_store, tiny, tmp_path, no_dynamo
):
    # PATH holds nothing: no c++, no ninja. Two ranks cut matrices between them.
    tools = tmp_path / "empty"
    tools.mkdir()
    env = {**no_dynamo, "PATH": str(tools), "HOME": str(tmp_path)}
    done = stage(store, {**tiny, "ranks": 2}, env=env)
    assert done.returncode == 0, done.stderr
    assert "step 8 of 8" in done.stderr and "validation" in done.stderr
    output = model_of(store)
    names = {entry.path for entry in output.entries() if entry.role == "content"}
    hf = {"config.json", "model.safetensors", "generation_config.json", "genres.json"}
    assert names == hf | {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    metadata = output.manifest.metadata
    assert set(metadata["valid_bits_per_character"]) >= {"mean"}
    assert (metadata["device"], metadata["ranks"]) == ("cpu", 2) and "device_name" in metadata
    folder = next(store.glob("runs/train/*"))
    assert {p.name for p in folder.iterdir()} <= {"LEASE.json", "INPUTS.json"}, "working files are gone"
    transformers = pytest.importorskip("transformers")
    output.path("model.safetensors")
    _, report = transformers.Qwen3ForCausalLM.from_pretrained(
        output.path("config.json").parent, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]

    again = stage(store, {**tiny, "ranks": 1})
    assert again.returncode == 0 and "committed already" in again.stderr
    # The same samples and steps as one rank's; sums in another order differ in the last digits.
    assert losses_of(model_of(trained_store)) == pytest.approx(losses_of(output), abs=1e-4)


@pytest.mark.long
def test_sigterm_pauses_and_the_same_command_goes_on(store, tiny, tmp_path, no_dynamo):
    model = {"artifacts": [{"name": "model", "uri": f"{tmp_path}/ref.json"}]}
    given = {"outputs": {"artifacts": {"model": model}, "outputFile": f"{tmp_path}/out.json"}}
    options = {**tiny, "steps": 60, "ranks": 2, "backend": "torch", "executor_input": json.dumps(given)}
    process = subprocess.Popen(command(store, options), stderr=subprocess.PIPE, text=True)
    folder = wait_for(lambda: begun(store, 3))
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=120)
    assert process.returncode == 75 and "paused at step" in log, log
    said = json.loads((tmp_path / "ref.json").read_text())
    assert (said["status"], said["why"]) == ("paused", "asked to stop by a signal"), said
    assert said["where"] == f"step {step_of(next((folder / 'checkpoints').glob('step-*')))} of 60"
    assert len(list((folder / "checkpoints").glob("step-*"))) == 1
    assert not processes_of(folder)
    finished = stage(store, options, env=no_dynamo)
    assert finished.returncode == 0 and "resuming at step" in finished.stderr, finished.stderr
    assert len(losses_of(model_of(store))) == 60


@pytest.mark.fault
def test_kill_9_at_any_step_changes_no_digit(store, tiny, tmp_path):
    """Whole processes; test_resume.py has one rank in every precision, test_two_ranks.py two of them."""
    options = {**tiny, "steps": 24, "ranks": 2, "checkpoint_steps": 5}
    whole = tmp_path / "whole"
    subprocess.run(["cp", "-r", str(store), str(whole)], check=True)
    assert stage(whole, options).returncode == 0
    for step in (3, 17):  # before the first checkpoint, and between two
        process = subprocess.Popen(command(store, options), stderr=subprocess.PIPE, text=True)
        folder = wait_for(lambda until=step: begun(store, until))
        victims = processes_of(folder)
        assert len(victims) == 2
        os.kill(victims[-1], signal.SIGKILL)
        _, log = process.communicate(timeout=120)
        assert process.returncode == 75 and "was killed by SIGKILL (for lack of memory" in log, log
    assert stage(store, options).returncode == 0
    assert losses_of(model_of(store)) == losses_of(model_of(whole))
    weights = [model_of(s).path("model.safetensors").read_bytes() for s in (store, whole)]
    assert weights[0] == weights[1]


@pytest.mark.process
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_killed_supervisor_leaves_no_workers_behind(store, tiny, ranks):
    process = subprocess.Popen(
        command(store, {**tiny, "steps": 5000, "backend": "torch", "ranks": ranks}), stderr=subprocess.DEVNULL
    )
    folder = wait_for(lambda: begun(store, 2))
    workers = processes_of(folder)
    assert [int(fields_of(worker)[1]) for worker in workers] == [process.pid] * ranks
    process.kill()
    process.wait()
    end = time.monotonic() + 30
    while processes_of(folder) and time.monotonic() < end:
        time.sleep(0.1)
    assert not processes_of(folder)


def test_a_damaged_cache_is_refused_before_a_worker_starts(store, tiny):
    path = next(store.glob("cas/tokenize/*/*/tokens-00000*"))
    path.write_bytes(path.read_bytes()[:-10])
    done = stage(store, tiny)
    assert done.returncode == 65 and "expected" in done.stderr and "yanmo" not in done.stdout
    assert not list(store.glob("runs/train/*/job.json"))


@pytest.mark.process
def test_training_goes_on_from_a_committed_model(trained_store, tmp_path, tiny):
    store = Path(shutil.copytree(trained_store, tmp_path / "store"))
    first = model_of(store)
    key = f"train/{first.manifest.key}"
    done = stage(store, {**tiny, "model": key, "steps": 4, "pointer": "tuned"})
    assert done.returncode == 0, done.stderr
    opened = open_store(str(store))
    tuned = open_reference(opened, read_pointer(opened, "dev", "tuned"))
    assert losses_of(tuned)[0] < losses_of(first)[0]


def test_a_run_that_goes_on_needs_no_second_room_for_its_checkpoints(tmp_path, monkeypatch, store_template):
    opened = open_store(str(store_template))
    cache = TokenCache.open(open_reference(opened, read_pointer(opened, "dev", "tokenize")))
    options = TrainConfig(layers=1, width=32, heads=1)
    needed = 44 * num_parameters(shape_of(options), cache.vocab_size)
    small = shutil._ntuple_diskusage(needed - 1, 0, needed - 10_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: small)
    with pytest.raises(EnvironmentFault, match=r"the whole disk has .*; give a --store on a larger one"):
        check_space(tmp_path, options, cache.vocab_size)
    disk = shutil._ntuple_diskusage(10 * needed, 0, needed - 10_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk)
    with pytest.raises(EnvironmentFault, match="free space"):
        check_space(tmp_path, options, cache.vocab_size)
    saved = tmp_path / "checkpoints" / "step-00000001"
    saved.mkdir(parents=True)
    (saved / "rank-00000.safetensors").write_bytes(bytes(10_000))
    check_space(tmp_path, options, cache.vocab_size)


def test_sinks_get_the_options_of_the_model(tmp_path):
    options = TrainConfig(seed=7, sinks="tensorboard=logs")
    told = _sinks(SimpleNamespace(key="0" * 64), SimpleNamespace(options=options, folder=tmp_path))._told
    assert told["run"]["options"]["seed"] == 7 and "micro_batch" in told["run"]["options"]
