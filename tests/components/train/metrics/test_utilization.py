import subprocess
import sys

import pytest

from yanmo.train.metrics.utilization import resident_memory

CHILD = """
import resource
from yanmo.train.metrics.utilization import resident_memory
before = resident_memory()
held = b"x" * 300_000_000
print(*before, *resident_memory(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells a process's own peak")
def test_the_peak_is_of_this_process_and_not_of_the_one_that_started_it():
    ballast = bytearray(b"x") * 1_500_000_000
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    now, most, now_with, most_with, counted = map(int, done.stdout.split())
    assert counted >= len(ballast), "the figure that would have been wrong"
    assert 0 < now <= most < 1_200_000_000
    assert now_with - now == pytest.approx(300_000_000, rel=0.02)
    assert now_with <= most_with < 1_500_000_000
    assert resident_memory()[0] > len(ballast)
