"""How many CPUs a container may use: what its control group says, and a real one."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from yanmo.common.control_group import free_memory, usable_cpus

V1 = Path("/sys/fs/cgroup/cpu")
HERE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def v1(quota: int, period: int = 100_000) -> dict[str, str]:
    return {"cpu/cpu.cfs_quota_us": f"{quota}\n", "cpu/cpu.cfs_period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "150000 100000\n"}, min(HERE, 2)),
        ({"cpu.max": "99900000 100000\n"}, HERE),
        ({"cpu.max": "max 100000\n"}, HERE),
        ({"cpu.max": "0 0\n"}, HERE),
        ({"cpu.max": "damaged\n"}, HERE),
        (v1(20_000), 1),
        (v1(400_000), min(HERE, 4)),
        (v1(-1), HERE),
        ({}, HERE),
    ],
)
def test_the_limit_of_the_container_counts(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text("1:cpu:/\n0::/\n")
    assert usable_cpus(tmp_path, tmp_path / "own") == expected


@pytest.fixture
def one_cpu() -> Iterator[Path]:
    """A real group of one CPU."""
    group = V1 / f"yanmo-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text("100000")
    except OSError as error:
        pytest.skip(f"needs a control group of version 1 that it may make: {error}")
    yield group
    group.rmdir()


def test_a_real_group_of_one_cpu(one_cpu: Path) -> None:
    code = (
        f"open('{one_cpu}/cgroup.procs', 'w').write('0'); "
        "from yanmo.common.control_group import usable_cpus; print(usable_cpus())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout == "1\n", ended.stderr


V1_MEMORY = {"memory/memory.stat": "cache 5\ntotal_rss 300\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.max": "1000\n", "memory.stat": "anon 400\nfile 500\n"}, 600),
        ({"memory.max": "1000\n", "memory.stat": "anon 1400\n"}, 0),
        ({"memory.max": "max\n", "memory.stat": "anon 400\n"}, None),
        ({"memory/memory.limit_in_bytes": "1000\n", **V1_MEMORY}, 700),
        ({"memory/memory.limit_in_bytes": f"{2**63 - 4096}\n", **V1_MEMORY}, None),
        ({}, None),
    ],
)
def test_memory_is_free_up_to_the_limit_of_the_container(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_memory(tmp_path, tmp_path / "own") == expected
