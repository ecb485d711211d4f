"""What this machine has to train on: CPUs, memory, and GPUs without importing torch in this process.

The supervisor never imports torch, and a machine without a GPU must not wait for it: without a device file
the answer is no GPU. Otherwise a separate process asks torch, as only what torch sees counts
(CUDA_VISIBLE_DEVICES, a CPU build, a driver that does not fit): the price is one import of torch per
training.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from yanmo.common.control_group import memory_group, memory_limit, usable_cpus
from yanmo.common.errors import EnvironmentFault
from yanmo.common.words import plural
from yanmo.model.flash_limits import Capability
from yanmo.train.backends.accelerator import compile_problem

log = logging.getLogger(__name__)
_FILES = ("nvidia[0-9]*", "dxg", "kfd")
"""Files in /dev of NVIDIA's driver, of a GPU under WSL, of AMD's driver."""
_SECONDS = 120.0
"""Longest time that torch may take to answer."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The CPUs and GPUs that a training would see, and what the GPUs can be used for."""

    cpus: int = 1
    """CPUs that the process may use: what its control group allows."""
    gpus: int = 0
    name: str = ""
    """Name of the GPU with the lowest compute capability."""
    capability: tuple[int, int] | None = None
    """Its compute capability, so that all ranks choose alike."""
    compiles: bool = False
    """Whether torch.compile finds what it needs on CUDA."""

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Machine:
        """Return the machine that `dataclasses.asdict` was called on; the values may have gone through JSON.

        Raises:
            ValueError: the values are not those of a machine.
        """
        capability = facts.get("capability")
        of_gpus = capability if isinstance(capability, (list, tuple)) else ()
        numbers = [facts.get("cpus"), facts.get("gpus"), *of_gpus]
        is_whole = (
            facts.keys() == cls.__dataclass_fields__.keys()
            and all(type(number) is int and number >= 0 for number in numbers)
            and facts["cpus"] > 0
            and (len(of_gpus) == 2 or (capability is None and not facts["gpus"]))
            and isinstance(facts["name"], str)
            and isinstance(facts["compiles"], bool)
        )
        if not is_whole:
            raise ValueError(f"expected what is known of a machine's CPUs and GPUs; found {dict(facts)}")
        return cls(**{**facts, "capability": tuple(capability) if capability else None})

    def __str__(self) -> str:
        if not self.gpus:
            return f"no GPU, {plural(self.cpus, 'CPU')}"
        shown = ".".join(map(str, self.capability or ())) or "unknown"
        compiler = "a compiler for them" if self.compiles else "no compiler for them"
        cpus = plural(self.cpus, "CPU")
        return f"{self.gpus} x {self.name} and {cpus}, compute capability {shown}, {compiler}"


def gpu_files() -> list[str]:
    """Device files that hint at a GPU."""
    return sorted(str(path) for pattern in _FILES for path in Path("/dev").glob(pattern))


@cache
def this_machine() -> Machine:
    """Return the CPUs of this machine, and its GPUs as torch sees them.

    Raises:
        EnvironmentFault: there is a GPU's device file, but torch could not be asked.
    """
    files = gpu_files()
    if not files:
        return Machine(cpus=usable_cpus())
    log.info("asking torch about the GPUs (%s)", ", ".join(files))
    command = [sys.executable, "-m", "yanmo.train.backends.hardware"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
        found = Machine.from_facts(json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, TypeError, AttributeError) as error:
        last_line = (getattr(error, "stderr", "") or "").strip().splitlines()[-1:]
        raise EnvironmentFault(
            f"{files[0]} exists, but torch could not be asked about it ({error}{': ' if last_line else ''}"
            f"{''.join(last_line)}); repair the driver, or give --device cpu"
        ) from error
    if not found.gpus:
        log.warning(
            "%s exists, but torch sees no GPU: it is a build for CPUs, or needs a newer driver", files[0]
        )
    return found


def _look() -> Machine:
    import torch

    if not torch.cuda.is_available():
        return Machine(cpus=usable_cpus())
    count = torch.cuda.device_count()
    least = min(range(count), key=torch.cuda.get_device_capability)
    return Machine(
        cpus=usable_cpus(),
        gpus=count,
        name=torch.cuda.get_device_name(least),
        capability=torch.cuda.get_device_capability(least),
        compiles=not compile_problem("cuda"),
    )


def machine_memory() -> int:
    """Return the bytes of this machine, or of the container's limit where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(total, memory_limit(memory_group()) or total)


def memory_kills() -> int:
    """Return how many processes of this container were killed so far for lack of memory.

    Files: kernel.org, cgroup-v2.rst (memory.events) and cgroup-v1/memory.rst (memory.oom_control).
    """
    group = memory_group()
    text = group.read("memory.oom_control" if group.is_v1 else "memory.events")
    lines = (line.split() for line in text.splitlines())
    return next((int(words[1]) for words in lines if words[:1] == ["oom_kill"]), 0)


@cache
def _asked(fields: str, path: str) -> str:
    """Return what the nvidia-smi on a PATH says of each GPU; "" without it."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def gpu_capability() -> Capability | None:
    """Return the lowest compute capability of the GPUs; None where nobody can say."""
    found = [
        line.strip().split(".") for line in _asked("compute_cap", os.environ.get("PATH", "")).splitlines()
    ]
    known = [(int(x[0]), int(x[1])) for x in found if len(x) == 2 and x[0].isdigit() and x[1].isdigit()]
    return min(known, default=None)


def smallest_gpu() -> int:
    """Return the bytes of the smallest GPU; 0 without nvidia-smi."""
    found = _asked("memory.total", os.environ.get("PATH", "")).split()
    return min((int(size) << 20 for size in found if size.isdigit()), default=0)


if __name__ == "__main__":
    print(json.dumps(asdict(_look())))
