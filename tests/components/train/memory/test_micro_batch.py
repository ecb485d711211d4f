"""The micro batch that a training goes on with after one did not fit."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import time

import pytest

from yanmo.common.control_group import memory_group
from yanmo.common.errors import EnvironmentFault
from yanmo.store.manifest import Reference
from yanmo.train.backends.hardware import memory_kills
from yanmo.train.config import TrainConfig
from yanmo.train.job import PeerFailed, Status, WorkerJob, is_out_of_memory
from yanmo.train.memory.fitting import halve_micro_batch, largest_micro_batch
from yanmo.train.supervision.ending import Ending
from yanmo.train.supervision.ranks import full_ranks
from yanmo.train.supervision.supervisor import _started
from yanmo.train.time_window import Hours, TimeWindow


@pytest.fixture
def task(tmp_path):
    """A job of 12 rows a rank."""
    options = TrainConfig(batch_rows=24, ranks=2, micro_batch=3)
    names = ("schema", "stage", "key", "manifest_uri", "manifest_sha256", "content_digest")
    return WorkerJob(options, str(tmp_path), Reference(**dict.fromkeys(names, "x")), None, tmp_path)


def test_half_of_an_odd_micro_batch_divides_the_rows_of_a_rank(task):
    assert largest_micro_batch(task.folder) == (0, "")
    halve_micro_batch(task, Status(1, "failed", out_of_memory=True))
    rows, note = largest_micro_batch(task.folder)
    assert rows == 1 and "3 rows on rank 1" in note


def test_a_start_has_its_own_end_and_no_micro_batch_that_did_not_fit(task):
    night = TimeWindow(1000.0, "--night is over")
    first = _started(task, night)
    assert (first.options.micro_rows, first.ends_at, first.reason) == (3, 1000.0, "--night is over")
    assert first.note == "" and _started(task, TimeWindow(math.inf, "")).ends_at is None
    halve_micro_batch(first, Status(0, "failed", out_of_memory=True))
    second = _started(task, night)
    assert second.options.micro_rows == 1 and "out of memory" in second.note
    assert WorkerJob.read(second.write()) == second


def test_one_row_cannot_be_halved(task):
    options = TrainConfig(batch_rows=24, ranks=2, micro_batch=1)
    with pytest.raises(EnvironmentFault, match="one row of 64 positions"):
        halve_micro_batch(WorkerJob(options, "", task.token_cache, None, task.folder), Status(0, "failed"))


def test_what_counts_as_out_of_memory():
    import numpy as np
    import torch

    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    for allocate in (lambda: torch.empty(1 << 58), lambda: np.empty(1 << 55)):
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            allocate()
        assert is_out_of_memory(caught.value), caught.value
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "Triton Error [CUDA]: out of memory",
        "NCCL error in: x.cpp:1, unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'",
    ],
)
def test_what_takes_memory_of_a_gpu_beside_torchs_allocator_says_so_in_its_own_words(said):
    assert is_out_of_memory(RuntimeError(said))
    assert not is_out_of_memory(PeerFailed(f"rank 1 failed: {said}")), "another rank's memory, not this one's"


def test_rows_that_fitted_on_other_ranks_are_cut_to_a_divisor(task):
    large = dataclasses.replace(task, options=dataclasses.replace(task.options, micro_batch=12))
    halve_micro_batch(large, Status(0, "failed", out_of_memory=True))
    assert largest_micro_batch(task.folder)[0] == 6
    on_three = dataclasses.replace(task.options, ranks=3, micro_batch=8)
    window = TimeWindow(math.inf, "")
    assert _started(dataclasses.replace(task, options=on_three), window).options.micro_rows == 4


def test_out_of_memory_while_stopping_is_no_bug(task, tmp_path, monkeypatch):
    from yanmo.stage.exporter import Telemetry
    from yanmo.store.opening import open_store
    from yanmo.store.runs.lease import Lease
    from yanmo.store.runs.work_folder import WorkFolder
    from yanmo.train.checkpoints.uploader import Uploader
    from yanmo.train.metrics.declared import METRICS
    from yanmo.train.metrics.gauges import MetricsGauges
    from yanmo.train.supervision import ranks
    from yanmo.train.supervision.supervisor import _one_start

    code = "from yanmo.train.job import failure; failure(1, MemoryError()).send()"
    full = ranks.Ranks([sys.executable, "-c", code], [os.environ])
    monkeypatch.setattr(ranks, "start", lambda options, path, place: full)
    store = open_store(str(tmp_path))
    lease = Lease(store, "runs/train/key/LEASE.json", "one")
    assert lease.acquire()
    uploader = Uploader(WorkFolder(store, "runs/train/key"), lease)
    gauges = MetricsGauges(Telemetry("train", METRICS), tmp_path)
    assert _one_start(task, Hours(task.options), gauges, uploader, [time.monotonic()]) is None
    assert largest_micro_batch(tmp_path)[0] == 1
    lease.release()


def test_a_rank_without_a_word_lacked_memory_where_the_system_killed_for_it():
    ending = Ending(ranks=2, statuses=[Status(1, "failed", follows=True)])
    (full,) = full_ranks(ending, was_killed=True)
    assert full.rank == 0 and full.out_of_memory and not full_ranks(ending, was_killed=False)


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("memory", {"memory.limit_in_bytes": "1", "memory.oom_control": "under_oom 0\noom_kill 3\n"}),
        (".", {"memory.max": "1", "memory.events": "oom 4\noom_kill 3\noom_group_kill 0\n"}),
    ],
)
def test_how_many_the_system_killed_for_memory_is_read_in_both_versions(tmp_path, folder, files):
    (tmp_path / folder).mkdir(exist_ok=True)
    for name, text in files.items():
        (tmp_path / folder / name).write_text(text)
    assert memory_kills(memory_group(tmp_path, tmp_path / "none")) == 3
