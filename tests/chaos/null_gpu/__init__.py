"""A GPU that computes nothing, for torch's CUDA build on a machine without one.

What torch does on the host is all real: its allocator, streams, page-locked memory, the choice and the launch
of kernels, NCCL's calls, torch.compile's code. Only what would run on the card is not: device memory is
address space, a kernel is a number in a count. So these can be tested without a card: that nothing on the way
raises, how much memory is held at the peak, what waits for the device, how many launches a step takes.

With `arithmetic` each operation of torch on such tensors runs on CPU tensors over the same memory
(arithmetic.py): then eager code gives right numbers too, and most of benchmarks/gpu.sh can run. What neither
shows: speed, the rounding of a GPU's kernels, what goes wrong in a kernel.

The library takes the place of libcudart, libcuda, libcublas, libnccl and libnvidia-ml by LD_PRELOAD; source/
is compiled once per torch. By hand: `python -m chaos.null_gpu -- COMMAND`; NULL_GPU_SAYS_WAITS=1 says each
wait.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
COUNTS = ("launches", "waits", "copies_in", "copies_out", "pageable_copies")
"""What `counts` returns; in the order of source/null_gpu.h."""
_OF_CPUS = ("DS_ACCELERATOR", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
"""What a test that has DeepSpeed on a CPU leaves in its environment (train/backends/zero.py)."""
_USERS = ("libc10_cuda.so", "libtorch_cuda.so", "libtorch_python.so", "libtorch_cuda_linalg.so")
_NAMES = re.compile(r"\b(?:__)?(?:cuda[A-Z]|cublas[A-Z]|nccl[A-Z])\w+")
_DEFINED = re.compile(r"^[\w ]+?\**(\w+)\(", re.MULTILINE)
_LANGUAGE = """
#define __host__
#define __device__
#define __device_builtin__
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
#define CUDARTAPI
#define CUDARTAPI_CDECL
"""
"""What crt/host_defines.h, which no wheel of torch's brings, says to a C compiler."""


def absent() -> str:
    """Why there is no null GPU here, for a skip; "" where there is one."""
    if not shutil.which("gcc") or not shutil.which("nm"):
        return "needs a C compiler"
    if not (_torch() / "lib" / "libtorch_cuda.so").exists() or not (_headers() / "driver_types.h").exists():
        return "needs torch's CUDA build"
    return ""


@cache
def has_device_file() -> bool:
    """Whether `python -m chaos.null_gpu` can show a command /dev/nvidia0: by a mount namespace of its own."""
    if os.getuid() != 0 or not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def _torch() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _headers() -> Path:
    """Those of the CUDA runtime's wheel, for the release that torch is pinned to."""
    return _torch().parent / "nvidia" / "cu13" / "include"


@cache
def library() -> Path:
    """The compiled library; made on first use, in the user's cache: temporary folders may forbid to run what
    they hold."""
    sources = sorted((HERE / "source").iterdir())
    users = [path for name in _USERS if (path := _torch() / "lib" / name).exists()]
    facts = [path.read_bytes() for path in sources] + [f"{p}{p.stat().st_mtime_ns}".encode() for p in users]
    digest = hashlib.sha256(b"\0".join([Path(__file__).read_bytes(), *facts])).hexdigest()[:16]
    kept = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "yanmo"
    folder = kept / f"null_gpu-{digest}"
    if not folder.exists():
        kept.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=kept))
        _build(made, [str(path) for path in sources if path.suffix == ".c"], users)
        try:
            made.rename(folder)
        except OSError:  # somebody else was faster
            shutil.rmtree(made)
    return folder / "libnull_gpu.so"


def _build(folder: Path, sources: list[str], users: list[Path]) -> None:
    defined = {name for path in sources for name in _DEFINED.findall(Path(path).read_text(encoding="utf-8"))}
    wanted = set[str]()
    for path in users:
        command = ["nm", "--dynamic", "--undefined-only", str(path)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        wanted |= {m[0] for line in said.splitlines() if (m := _NAMES.fullmatch(_name(line)))}
    others = folder / "others.c"
    lines = [f"int {name}(void) {{ return 0; }}\n" for name in sorted(wanted - defined)]
    others.write_text("/* Of what torch links against, what does nothing here. */\n" + "".join(lines))
    (folder / "crt").mkdir()
    (folder / "crt" / "host_defines.h").write_text(_LANGUAGE)
    command = ["gcc", "-shared", "-fPIC", "-O2", "-w"]
    command += [f"-I{place}" for place in (folder, _headers(), HERE / "source")]
    made = folder / "libnull_gpu.so"
    subprocess.run([*command, "-o", str(made), *sources, str(others), "-ldl", "-lpthread"], check=True)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):  # as Triton and NVML's readers look for them
        (folder / name).symlink_to(made.name)


def _name(line: str) -> str:
    return line.split()[-1].partition("@")[0]


def environment(
    *, gibibytes: float = 0, capability: float = 9.0, arithmetic: bool = False, microseconds: int = 0
) -> dict[str, str]:
    """The environment of a process that sees the card: this one's, and what that needs.

    Args:
        gibibytes: of the card's memory; 0: those of an H100.
        capability: the card's compute capability; 7.5 has no bf16.
        arithmetic: whether operations are computed, on the CPU; torch's dispatch then takes 10 times as long.
        microseconds: that a kernel takes on the card, after its launch.
    """
    folder = str(library().parent)
    others = os.environ.get("LD_LIBRARY_PATH")
    found = {name: value for name, value in os.environ.items() if name not in _OF_CPUS} | {
        "LD_PRELOAD": str(library()),
        "LD_LIBRARY_PATH": os.pathsep.join([folder, *([others] if others else [])]),
        "TRITON_LIBCUDA_PATH": folder,
        "NULL_GPU_CAPABILITY": str(round(10 * capability)),
    }
    if gibibytes:
        found["NULL_GPU_BYTES"] = str(int(gibibytes * 2**30))
    if microseconds:
        found["NULL_GPU_KERNEL_MICROSECONDS"] = str(microseconds)
    if arithmetic:
        found["NULL_GPU_ARITHMETIC"] = "1"
        paths = [str(HERE / "site"), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
        found["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return found


def counts() -> dict[str, int]:
    """Of this process, which must see the card: launches, waits for the device, copies by direction, and
    those that were not to be waited for, but whose host memory is not page-locked."""
    loaded = ctypes.CDLL(None)
    loaded.null_gpu_count.restype = ctypes.c_uint64
    return {name: int(loaded.null_gpu_count(i)) for i, name in enumerate(COUNTS)}


def kernels() -> dict[str, int]:
    """Launches by the kernel's name, as the compiler spells it."""
    loaded, found = ctypes.CDLL(None), dict[str, int]()
    loaded.null_gpu_kernel.restype = ctypes.c_char_p
    launches = ctypes.c_uint64()
    for at in range(loaded.null_gpu_slots()):
        name = loaded.null_gpu_kernel(at, ctypes.byref(launches)).decode()
        if launches.value:
            found[name] = found.get(name, 0) + launches.value
    return found
