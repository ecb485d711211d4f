"""Has a container that is out of memory killed whole on a node with cgroup v1, as the kubelet has it on v2.

    python tests/cluster/killed_whole.py --stage train --seconds 1800     # as root, on the only node

On cgroup v1 the kernel kills one process of a container that needs more memory than its limit; on v2 the
kubelet (1.28 and later) sets memory.oom.group, and all of them die at once. Here the kernel's own killer is
switched off in the memory group of each container that runs the stage, and once a process of it waits for
memory that it cannot get (`under_oom`), every process of it gets SIGKILL. The limit and its use are real.
Prints a line for each container that it sees and each that it kills. Needs KUBECONFIG.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from real_cluster import RealCluster

GROUPS = Path("/sys/fs/cgroup/memory")
_LOOK_SECONDS, _LIST_SECONDS = 0.01, 1.0


class Container:
    """Its memory group."""

    def __init__(self, pod: str, folder: Path) -> None:
        self.pod, self.folder = pod, folder
        self._control = folder / "memory.oom_control"
        self._control.write_text("1", encoding="ascii")
        limit = int((folder / "memory.limit_in_bytes").read_text(encoding="ascii"))
        print(f"{pod}: limit {limit / 2**20:.0f} MiB", flush=True)

    def is_full(self) -> bool:
        return "under_oom 1" in self._control.read_text(encoding="ascii")

    def kill(self) -> None:
        killed = set[int]()
        while pids := set(map(int, (self.folder / "cgroup.procs").read_text(encoding="ascii").split())):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not killed:  # what is killed while it waits needs memory to end
                self._control.write_text("0", encoding="ascii")
            killed |= pids
            time.sleep(_LOOK_SECONDS)
        now = time.strftime("%H:%M:%S")
        print(f"{now} {self.pod}: out of memory, {len(killed)} processes killed", flush=True)


def containers(cluster: RealCluster, stage: str) -> dict[str, str]:
    """Id -> pod, of running containers of the stage: KFP's `main`, a Job's `stage`."""
    lines = cluster.kubectl(
        "get",
        "pods",
        f"--selector=yanmo.dev/stage={stage}",
        "--field-selector=status.phase=Running",
        "-o=jsonpath={range .items[*]}{.metadata.name}{range .status.containerStatuses[*]}"
        "{' '}{.name}={.containerID}{end}{'\\n'}{end}",
    )
    found = {}
    for pod, *of_it in map(str.split, lines.splitlines()):
        for name, _, uri in (each.partition("=") for each in of_it):
            if name in ("main", "stage") and uri:
                found[uri.rpartition("/")[2]] = pod
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stage", default="train")
    parser.add_argument("--seconds", type=float, default=1800)
    given = parser.parse_args()
    if not (GROUPS / "memory.oom_control").exists() and not list(GROUPS.glob("*/memory.oom_control")):
        print(f"error: no memory groups of cgroup v1 in {GROUPS}; on v2 the kubelet does it", file=sys.stderr)
        return 78
    cluster, seen, watched = RealCluster(), set[str](), list[Container]()
    end, listed = time.monotonic() + given.seconds, 0.0
    while time.monotonic() < end:
        if time.monotonic() - listed > _LIST_SECONDS:
            for known, pod in containers(cluster, given.stage).items():
                folders = [] if known in seen else list(GROUPS.glob(f"**/*{known}*"))
                if folders:
                    seen.add(known)
                    watched.append(Container(pod, folders[0]))
            listed = time.monotonic()
        for each in list(watched):
            try:
                if each.is_full():
                    each.kill()
                    watched.remove(each)
            except OSError:  # it ended by itself
                watched.remove(each)
        time.sleep(_LOOK_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
