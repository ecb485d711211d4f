"""How many CPUs a container may use: what its control group says, and a real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from yanmo.common.control_group import free_memory, usable_cpus

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
