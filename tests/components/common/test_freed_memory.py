"""What a process keeps of the memory that it is done with."""

import mmap
import os
import re
import subprocess
import sys
from pathlib import Path

from yanmo.common.freed_memory import drop_pages

STEPS = """
import resource, sys
import numpy as np
from yanmo.common.freed_memory import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else None
def step():
    [np.ones(500_000) for _ in range(20)]  # 20 blocks of 4 MB, freed together
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(way: str, **variables: str) -> tuple[str, int]:
    env = {name: text for name, text in os.environ.items() if not name.startswith("MALLOC_")} | variables
    done = subprocess.run(
        [sys.executable, "-c", STEPS, way], env=env, capture_output=True, text=True, check=True
    )
    kept, count = done.stdout.split()
    return kept, int(count)


def test_a_step_faults_no_pages_that_the_one_before_has_freed():
    kept, few = faults("keep")
    _, many = faults("leave")
    assert kept == "True" and few < 100 < 10_000 < many


def test_what_the_environment_says_is_left_alone():
    assert faults("keep", MALLOC_TRIM_THRESHOLD_="131072")[0] == "False"


def test_pages_of_a_mapped_file_that_were_read_are_let_go(tmp_path: Path):
    (tmp_path / "file").write_bytes(os.urandom(8 << 20))
    with (
        (tmp_path / "file").open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages,
    ):
        first = sum(pages[:: mmap.PAGESIZE])
        assert resident(tmp_path / "file") == 8 << 10
        drop_pages(pages)
        assert resident(tmp_path / "file") == 0
        assert sum(pages[:: mmap.PAGESIZE]) == first


def resident(path: Path) -> int:
    """KiB of a mapped file that count as memory of this process."""
    maps = Path("/proc/self/smaps").read_text().split("VmFlags:")
    (ours,) = (one for one in maps if f"{path}\n" in one)
    return int(re.findall(r"^Rss: +(\d+) kB$", ours, re.M)[0])
