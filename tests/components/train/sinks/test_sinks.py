"""Sinks with the real libraries: what they hold after a training, one that went back, one that was killed."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from yanmo.train import job
from yanmo.train.options.measuring_options import wrong_sinks as wrong
from yanmo.train.sinks.process import Sinks
from yanmo.train.sinks.sink import Follower, figures_of

RUN = {
    "key": "0123456789abcdef" * 4,
    "run_id": "night-7",
    "channel": "main",
    "options": {"steps": 40, "名": "词"},
}
WRONG = [
    ("tensorbord=tb", "did you mean tensorboard?"),
    ("mlflow", "expected some of tensorboard=DIR"),
    ("wandb=", "wandb=PROJECT"),
    ("wandb=a,wandb=b", "names wandb 2 times"),
]
LOG = {"log_level": "info", "log_format": "plain"}
Held = dict[str, list[tuple[int, float]]]


class Patient(Sinks):
    """A busy machine takes its time to import a library and to make a database."""

    last_seconds = stopped_seconds = 300.0


def line(step: int, loss: float) -> dict[str, Any]:
    return {
        "step": step,
        "loss": loss,
        "mfu": None,
        "phase_seconds": {"forward": 0.25},
        "memory_bytes": 10**9,
    }


def valid(step: int, bits: float) -> dict[str, Any]:
    return {"step": step, "valid_bits_per_character": {"词": bits, "mean": bits}}


def write(folder: Path, *lines: dict[str, Any], again: bool = False) -> None:
    """More lines, or the whole file again, as a training that goes back does it (metrics_log.py)."""
    path = folder / job.METRICS
    old = b"" if again or not path.exists() else path.read_bytes()
    text = old + "".join(json.dumps(one) + "\n" for one in lines).encode()
    if again:
        path.with_suffix(".new").write_bytes(text)
        path.with_suffix(".new").replace(path)
    else:
        with path.open("ab") as file:
            file.write(text[len(old) :])


def test_figures_of_every_kind_of_line() -> None:
    found = figures_of({**line(10, 4.5), "perplexity": math.inf, "attention": "masked"})
    assert found == {"train/loss": 4.5, "train/memory_bytes": 1e9, "seconds/forward": 0.25}
    assert figures_of(valid(10, 5.5)) == {"valid/词": 5.5, "valid/mean": 5.5}
    monitor = {"step": 10, "monitor": {"grad_norm": {"0": 0.5, "head": None}, "output_entropy": 0.25}}
    assert figures_of(monitor) == {"monitor/grad_norm/0": 0.5, "monitor/output_entropy": 0.25}
    assert figures_of({"step": 10, "event": "rewind", "loss": 5.0}) == {}


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_a_place_that_cannot_be_is_refused_before_anything_begins(given: str, said: str) -> None:
    (problem, *_) = wrong(given)
    assert said in problem and "secret" not in problem
    assert not list(wrong("tensorboard=tb, mlflow=http://there:5000/x,wandb=me/verses")) and not list(
        wrong("")
    )


class Kept:
    """A sink in memory: what the Follower hands over."""

    def __init__(self) -> None:
        self.found = list[tuple[int, str, float]]()

    def begin(self, run: object) -> defaultdict[str, int]:
        found = defaultdict[str, int](lambda: -1)
        for step, name, _ in self.found:
            found[name] = max(step, found[name])
        return found

    def write(self, step: int, figures: dict[str, float]) -> None:
        self.found += [(step, name, value) for name, value in figures.items()]

    def flush(self) -> None: ...

    def end(self, done: bool) -> None: ...


@pytest.mark.parametrize("killed_after", range(6))
def test_each_figure_is_handed_over_once_however_often_either_begins_again(
    tmp_path: Path, killed_after: int
) -> None:
    """The sink's process may be gone at any time; the training goes back to step 20, and has other losses."""
    sink = Kept()
    follower = Follower(tmp_path, sink, None)
    acts: list[Callable[[], None]] = [
        lambda: write(tmp_path, line(10, 5.0)),
        lambda: write(tmp_path, valid(10, 6.0), line(20, 4.0)),
        lambda: write(tmp_path, line(30, 3.0), valid(30, 4.0)),
        lambda: write(tmp_path, line(10, 5.0), valid(10, 6.0), line(20, 4.0), again=True),
        lambda: write(tmp_path, line(30, 2.5), valid(30, 3.5)),
        lambda: write(tmp_path, line(40, 2.0)),
    ]
    for number, act in enumerate(acts):
        act()
        follower.hand_over()
        if number == killed_after:
            follower = Follower(tmp_path, sink, None)
            follower.hand_over()
    found = {name: [] for _, name, _ in sink.found}  # type: Held
    for step, name, value in sink.found:
        found[name].append((step, value))
    assert found["train/loss"] == [(10, 5.0), (20, 4.0), (30, 3.0), (40, 2.0)]
    assert found["valid/词"] == [(10, 6.0), (30, 4.0)]


def tensorboard(tmp_path: Path) -> tuple[str, Callable[[], Held]]:
    """A target, and what is in it."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def held() -> Held:
        (folder,) = (tmp_path / "tb").iterdir()
        assert folder.name == "train-0123456789ab"
        read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        read.Reload()
        assert "options" in read.Tags()["tensors"]
        return {n: [(e.step, round(e.value, 6)) for e in read.Scalars(n)] for n in read.Tags()["scalars"]}

    return f"tensorboard={tmp_path / 'tb'}", held


def mlflow(tmp_path: Path) -> tuple[str, Callable[[], Held]]:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    pytest.importorskip("sqlalchemy", reason="mlflow is not installed with a database")
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"

    def held() -> Held:
        client = MlflowClient(tracking_uri=uri)
        (run,) = client.search_runs([client.get_experiment_by_name("yanmo").experiment_id])
        assert run.info.run_name == "train-0123456789ab" and run.data.params["steps"] == "40"
        assert run.data.tags["yanmo.run_id"] == "night-7"
        return {
            name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics
        }

    return f"mlflow={uri}", held


KINDS = {"tensorboard": tensorboard, "mlflow": mlflow}


def killed_in_the_midst(given: str, folder: Path) -> None:
    """The supervisor dies by kill -9 while its sink is at work; the sink ends with it."""
    code = (
        "import os, signal, sys, time, json\n"
        "from pathlib import Path\n"
        "from yanmo.train.sinks.process import Sinks\n"
        "given, folder, run, log = json.loads(sys.argv[1])\n"
        "with Sinks(given, Path(folder), run, log) as sinks:\n"
        "    sys.stdin.readline()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    told = json.dumps([given, str(folder), RUN, LOG])
    process = subprocess.Popen([sys.executable, "-c", code, told], stdin=subprocess.PIPE, text=True)
    process.communicate("\n")


@pytest.mark.fault
@pytest.mark.parametrize("kind", KINDS)
def test_a_training_that_went_on_after_a_kill_is_one_run_without_a_step_twice(
    kind: str, tmp_path: Path
) -> None:
    given, held = KINDS[kind](tmp_path)
    write(tmp_path, line(10, 5.0), valid(10, 6.0), line(20, 4.0), line(30, 3.0))
    with Patient(given, tmp_path, RUN, LOG):
        pass  # asked to stop: the training goes on later
    killed_in_the_midst(given, tmp_path)
    write(tmp_path, line(10, 5.0), valid(10, 6.0), line(20, 4.0), again=True)  # the checkpoint was of step 20
    with Patient(given, tmp_path, RUN, LOG) as sinks:
        write(tmp_path, line(30, 3.0), line(40, 2.0), valid(40, 3.0))
        sinks.is_done = True
    found = held()
    assert found["train/loss"] == [(10, 5.0), (20, 4.0), (30, 3.0), (40, 2.0)]
    assert found["valid/词"] == [(10, 6.0), (40, 3.0)]


def test_weights_and_biases_offline_keeps_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    write(tmp_path, line(10, 5.0), valid(10, 6.0), line(20, 4.0))
    with Patient("wandb=verses", tmp_path, RUN, LOG) as sinks:
        sinks.is_done = True
    (path,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    assert path.stem == f"run-yanmo-{RUN['key'][:32]}"
    losses = []
    for data in records(path.read_bytes()):
        history = wandb_internal_pb2.Record.FromString(data).history
        items = {item.key or "/".join(item.nested_key): item.value_json for item in history.item}
        if "train/loss" in items:
            losses.append((history.step.num, float(items["train/loss"])))
    assert losses == [(10, 5.0), (20, 4.0)]


def records(data: bytes) -> Iterator[bytes]:
    """Of a .wandb file: seven bytes, then LevelDB's log of blocks of 32 KiB."""
    at, whole = 7, b""
    while at < len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole = (whole if kind in (3, 4) else b"") + data[at + 7 : at + 7 + length]
        if kind in (1, 4):
            yield whole
        at += 7 + length


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = list[socket.socket]()

        def take() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.long
def test_a_place_that_never_answers_is_left_at_the_end(
    silent: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    write(tmp_path, line(10, 5.0))
    with Sinks(f"mlflow={silent}", tmp_path, RUN, LOG) as sinks:
        ((_, process),) = sinks._started
    assert process.poll() is not None
    assert "sink mlflow did not take all figures" in caplog.text


def test_a_place_that_fails_is_warned_of_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    (tmp_path / "file").write_text("no folder")
    write(tmp_path, line(10, 5.0))
    with Sinks(f"tensorboard={tmp_path / 'file'}", tmp_path, RUN, LOG):
        pass
    said = capfd.readouterr().err
    assert said.count("sink tensorboard") == 1 and "the training goes on" in said


def test_a_library_that_is_not_there_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb.py").write_text("raise ImportError('No module named wandb')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    with Sinks("wandb=verses", tmp_path, RUN, LOG):
        pass
    assert "pip install '.[wandb]'" in capfd.readouterr().err


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: DeepSpeed")
def test_a_rank_imports_none_of_the_libraries() -> None:
    """DeepSpeed would import MLflow where that is installed."""
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    code = (
        "import sys\n"
        "from yanmo.train.backends.zero import import_deepspeed\n"
        "import_deepspeed('cpu')\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not {"mlflow", "wandb", "tensorboard"} & set(done.stdout.split())
