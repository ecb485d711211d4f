"""A worker of a stage that is killed: curate and tokenize end alike, and the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from processes import members, needs_proc, survivors

from yanmo.common.errors import ExitCode
from yanmo.formats.records import DOCUMENTS, document_id, write_parquet
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.pointers import move_pointer

ROOT = Path(__file__).parents[2]
pytestmark = needs_proc


def workers_of(stage: int) -> list[int]:
    """Its fork server's children."""
    parents = members(stage)
    return [pid for pid, parent in parents.items() if parent != stage and parents.get(parent) == stage]


def curate(store: Path, tmp_path: Path) -> list[str]:
    source = tmp_path / "documents.jsonl"
    source.write_bytes((ROOT / "tests" / "data" / "documents.jsonl").read_bytes() * 20)
    return ["curate", f"--sources={source}", "--batch-bytes=2000", "--workers=2", f"--store={store}"]


def tokenize(store: Path, tmp_path: Path) -> list[str]:
    opened = FileStore(store)

    def build(attempt) -> Result:
        for n in range(8):
            texts = [f"明月几时有，把酒问青天。不知天上宫阙{n}{i}" for i in range(400)]
            rows = [
                {"id": document_id("s", "t", x), "text": x, "genre": "词", "title": "t", "author": "a"}
                | {"source": "s", "license": "l", "split": "train", "cluster_id": "0", "cluster_size": 1}
                for x in texts
            ]
            name = f"train-{n:05d}-of-00008.parquet"
            write_parquet(pa.Table.from_pylist(rows, schema=DOCUMENTS), attempt.path(name))
            attempt.add(name)
        return Result(counts={}, metadata={"text_form": "classical-1"})

    made = commit_once(opened, Recipe(stage="curate", revision=1, semantic={}, inputs={}), build)
    move_pointer(opened, "dev", "curate", made.reference)
    flags = ("--vocab-size=2048", "--min-character-count=1", "--agreement-sentences=0")
    return ["tokenize", *flags, "--workers=2", f"--store={store}"]


@pytest.mark.parametrize("command", [curate, pytest.param(tokenize, marks=pytest.mark.fault)])
def test_a_killed_worker_ends_the_stage_with_75_and_the_same_command_goes_on(command, tmp_path) -> None:
    stage, *flags = command(tmp_path / "store", tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "components")}
    asked = [sys.executable, "-m", f"yanmo.{stage}", *flags, "--metrics-port=-1"]
    process = subprocess.Popen(
        asked, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while process.poll() is None:
        for worker in workers_of(process.pid):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        time.sleep(0.01)
    _, stderr = process.communicate()
    assert process.returncode == ExitCode.RETRY, stderr
    assert "a worker process was killed (SIGKILL) in" in stderr and "fewer --workers" in stderr
    assert not survivors(process.pid)
    again = subprocess.run(asked, env=environment, capture_output=True, text=True)
    assert again.returncode == ExitCode.DONE, again.stderr
