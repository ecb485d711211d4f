"""Page faults of a step that frees what it asks for, in a process of its own."""

import os
import subprocess
import sys

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
