"""What this machine has to train on: CPUs, memory, and GPUs without importing torch in this process.

The supervisor never imports torch, and a machine without a GPU must not wait for it: without a device file
the answer is no GPU. Otherwise a separate process asks torch, as only what torch sees counts
(CUDA_VISIBLE_DEVICES, a CPU build, a driver that does not fit): the price is one import of torch per
training.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from yanmo.common.control_group import ControlGroup, memory_group, memory_limit, usable_cpus
from yanmo.common.errors import EnvironmentFault
from yanmo.common.words import plural
from yanmo.train.config import TrainConfig

log = logging.getLogger(__name__)
_FILES = ("nvidia[0-9]*", "dxg", "kfd")
"""Files in /dev of NVIDIA's driver, of a GPU under WSL, of AMD's driver."""
_COMPILERS = ("c++", "g++", "clang++")
"""C++ compilers that torch.compile looks for on a CPU; one named in CXX comes first."""
_C_COMPILERS = ("gcc", "clang")
"""C compilers that Triton looks for on CUDA; one named in CC is used instead."""
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
    memory: int = 0
    """Bytes of the smallest GPU; 0 where nobody can say, and for a machine of the past."""

    def facts(self) -> dict[str, Any]:
        """Return what decides the options: what a record of the machine holds."""
        return {name: value for name, value in asdict(self).items() if name != "memory"}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Machine:
        """Return the machine of such facts, with or without its memory; they may have gone through JSON.

        Raises:
            ValueError: the values are not those of a machine.
        """
        facts = {"memory": 0, **facts}
        capability = facts.get("capability")
        of_gpus = capability if isinstance(capability, (list, tuple)) else ()
        numbers = [facts.get("cpus"), facts.get("gpus"), facts.get("memory"), *of_gpus]
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
        said = (getattr(error, "stderr", "") or "").strip().splitlines()
        raise EnvironmentFault(
            f"{files[0]} exists, but torch cannot use it ({said[-1] if said else error}); repair that, or "
            "give --device cpu"
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
    _check_age(torch.cuda.get_device_name(least), torch.cuda.get_device_capability(least))
    return Machine(
        cpus=usable_cpus(),
        gpus=count,
        name=torch.cuda.get_device_name(least),
        capability=torch.cuda.get_device_capability(least),
        compiles=not compile_problem("cuda"),
        memory=min(torch.cuda.get_device_properties(n).total_memory for n in range(count)),
    )


def _check_age(name: str, capability: tuple[int, int]) -> None:
    """Refuse a GPU that this build of torch has no kernels for: it would fail at its first."""
    import torch

    made_for = [a.partition("_")[2] for a in torch.cuda.get_arch_list() if a.startswith(("sm_", "compute_"))]
    oldest = min((int(digits.rstrip("abcdef")) for digits in made_for), default=0)
    major, minor = capability
    if 10 * major + minor < oldest:
        sys.exit(
            f"{name}: its compute capability is {major}.{minor}, and this build of torch begins with "
            f"{oldest / 10}: install an older build, or hide it by CUDA_VISIBLE_DEVICES"
        )


def machine_memory() -> int:
    """Return the bytes of this machine, or of the container's limit where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(total, memory_limit(memory_group()) or total)


def memory_kills(group: ControlGroup | None = None) -> int:
    """Return how many processes of this container were killed so far for lack of memory.

    Files: kernel.org, cgroup-v2.rst (memory.events) and cgroup-v1/memory.rst (memory.oom_control).
    """
    group = group or memory_group()
    text = group.read("memory.oom_control" if group.is_v1 else "memory.events")
    lines = (line.split() for line in text.splitlines())
    return next((int(words[1]) for words in lines if words[:1] == ["oom_kill"]), 0)


def has_compiler() -> bool:
    """Return whether torch.compile finds a C++ compiler: one named in CXX or on PATH."""
    asked = os.environ.get("CXX", "")
    return any(shutil.which(name) for name in (asked, *_COMPILERS) if name)


def compile_problem(device: str) -> str:
    """Return why torch.compile cannot work on a device, and what to do; "" if it can.

    At the first step inductor compiles C++ on a CPU; on CUDA Triton builds a C module for each kernel.
    """
    if device == "cpu":
        if has_compiler():
            return ""
        return (
            f"on a CPU it needs a C++ compiler: none of {', '.join(_COMPILERS)} is on PATH; install g++, "
            "name one in CXX"
        )
    if device != "cuda":
        return ""
    named = os.environ.get("CC", "")
    if not any(shutil.which(name) for name in ((named,) if named else _C_COMPILERS)):
        found = f"CC={named} is not there" if named else f"none of {', '.join(_C_COMPILERS)} is on PATH"
        return f"on CUDA Triton needs a C compiler: {found}; install gcc and libc6-dev, name one in CC"
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")  # as Triton on Debian
    headers = Path(sysconfig.get_paths(scheme)["include"])
    if not (headers / "Python.h").exists():
        return f"on CUDA Triton needs Python's headers: there is no {headers}/Python.h; install python3-dev"
    if importlib.util.find_spec("triton") is None:
        return "on CUDA it needs Triton, which this torch came without; install torch's CUDA build"
    return ""


def check_compiler(options: TrainConfig, device: str) -> None:
    """Refuse --compile if it would fail at the first step; does not import torch, so no GPU is held yet.

    Raises:
        EnvironmentFault: the compiler or something else is missing; says what to do.
    """
    problem = compile_problem(device) if options.compile else ""
    if problem:
        raise EnvironmentFault(f"--compile: {problem}, or train with --compile false")


if __name__ == "__main__":
    print(json.dumps(asdict(_look())))
