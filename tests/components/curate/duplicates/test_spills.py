"""What lies on disk between the phases of a run: a full disk, a kill, and that nothing of it stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted import damaged

from yanmo.common.errors import ExitCode
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer

FULL = """
import resource, runpy
from yanmo.curate.duplicates import near_duplicates

write_sets = near_duplicates.write_sets

def full(task):
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    return write_sets(task)

near_duplicates.write_sets = full
runpy.run_module("yanmo.curate", run_name="__main__")
"""
"""The stage on a disk that is full from the moment on at which it writes the first set of shingles."""


def command(store: Path, source: Path) -> list[str]:
    argv = [sys.executable, "-m", "yanmo.curate", f"--sources={source}", f"--store={store}", "--workers=1"]
    return [*argv, "--metrics-port=-1"]


@pytest.fixture
def source(lines: list[dict[str, Any]], write_jsonl: Callable[..., Path]) -> Path:
    """A text with five copies of each document, so that nearly all are compared."""
    copies = [
        {**line, "text": damaged(line["text"], number), "source": f"copy {number}"}
        for line in lines
        for number in range(4)
    ]
    return write_jsonl("copies.jsonl", [*lines, *copies])


@pytest.fixture
def mapped(tmp_path: Path, source: Path) -> Path:
    """A store in which the text is mapped and signed."""
    store = tmp_path / "mapped"
    subprocess.run(command(store, source), check=True, capture_output=True)
    shutil.rmtree(store / "pointers")
    for stage in (store / "cas").iterdir():
        if stage.name != "curate_map":
            shutil.rmtree(stage)
    return store


def output(store: Path) -> Output:
    opened = FileStore(store)
    pointer = read_pointer(opened, "dev", "curate")
    assert pointer is not None
    return open_reference(opened, pointer)


def scratch(store: Path) -> list[Path]:
    return [*store.glob("cas/*/*/*/scratch*")]


@pytest.mark.fault
def test_a_full_disk_ends_the_run_with_78_and_leaves_nothing_and_the_same_command_goes_on(
    tmp_path: Path, mapped: Path, source: Path
) -> None:
    whole = shutil.copytree(mapped, tmp_path / "whole")
    subprocess.run(command(whole, source), check=True, capture_output=True)

    words = command(mapped, source)[3:]
    ended = subprocess.run([sys.executable, "-c", FULL, *words], capture_output=True, text=True)
    assert ended.returncode == ExitCode.ENVIRONMENT, ended.stderr
    assert "file too large" in ended.stderr and "set-0" in ended.stderr
    assert not [path for path in mapped.glob("cas/curate_similar/*/*/**/*") if path.is_file()]
    assert not scratch(mapped)
    subprocess.run(command(mapped, source), check=True, capture_output=True)
    assert output(mapped).content_digest == output(whole).content_digest
    assert not scratch(mapped)


@pytest.mark.fault
def test_a_run_that_is_killed_while_it_has_files_in_scratch_goes_on_with_the_same_bytes(
    tmp_path: Path, mapped: Path, source: Path
) -> None:
    whole = shutil.copytree(mapped, tmp_path / "whole")
    subprocess.run(command(whole, source), check=True, capture_output=True)
    for number in range(5):
        store = shutil.copytree(mapped, tmp_path / f"killed-{number}")
        stage = subprocess.Popen(command(store, source), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while stage.poll() is None and not scratch(store):
            time.sleep(0.001)
        if stage.poll() is None:
            os.kill(stage.pid, signal.SIGKILL)
        stage.wait()
        if scratch(store):
            break
    else:
        pytest.fail("no kill came while there was a scratch folder")
    subprocess.run(command(store, source), check=True, capture_output=True)
    assert output(store).content_digest == output(whole).content_digest
    assert not [*output(store).path("report.json").parent.glob("scratch*")]
