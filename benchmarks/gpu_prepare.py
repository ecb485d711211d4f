"""What benchmarks/gpu.sh takes to the machine with the GPU, made here: two small stores and missing packages.

store/        a token cache of 160 real documents, vocabulary 400: of tests/components/train/conftest.py
evaluation/   an evaluation set of 48 documents and a model of 1.2 M parameters: of the tests of evaluate
wheels/       DeepSpeed and what that machine's Python lacks, for its version
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_TESTS = ROOT / "tests" / "components"
MODEL = {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "intermediate_size": 256,
    "max_position_embeddings": 32,
}
_WHEELS = (
    *("deepspeed", "hjson", "pydantic", "pydantic_core", "annotated_types", "typing_inspection", "psutil"),
    *("minio", "argon2_cffi", "argon2_cffi_bindings", "cffi", "pycparser", "pycryptodome", "nvidia_ml_py"),
)
"""Beside torch, numpy, numba, pyarrow, tokenizers, safetensors and pyyaml, which the machine has."""
_PYTHON = "3.12"
_PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux1")


def prepare(folder: Path) -> None:
    """Fill the folder again and say how much there is to carry."""
    stores(folder)
    wheels(folder / "wheels")
    carried = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {carried / 2**20:.1f} MiB to carry beside the working tree")


def stores(folder: Path) -> None:
    """The two stores, as the tests make theirs."""
    for name in ("store", "evaluation"):
        shutil.rmtree(folder / name, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    _module(_TESTS / "train" / "conftest.py").make_store(folder / "store")
    tiny = _module(_TESTS / "evaluate" / "tiny_store.py")
    made = folder / "model"
    try:
        ground = tiny.make_ground(folder / "evaluation", made)
        shutil.rmtree(made)
        names = tiny.make_model(made, **MODEL)
        tiny.commit(ground.store, "train", tiny.copied(made, names), options={"size": "gpu"})
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _module(path: Path) -> Any:
    sys.path.insert(0, str(path.parent))  # for what it imports from beside it
    spec = importlib.util.spec_from_file_location(f"gpu_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def wheels(folder: Path) -> None:
    """The packages at the versions of this environment, for that machine's Python."""
    shutil.rmtree(folder, ignore_errors=True)
    pip = [sys.executable, "-m", "pip"]
    subprocess.run(
        [*pip, "wheel", "-q", "--no-deps", "-w", str(folder), f"deepspeed=={version('deepspeed')}"],
        check=True,
    )
    wanted = [f"{name}=={version(name)}" for name in _WHEELS if name != "deepspeed"]
    places = [f"--platform={name}_x86_64" for name in _PLATFORMS]
    command = [*pip, "download", "-q", "--no-deps", "--only-binary=:all:", f"--python-version={_PYTHON}"]
    subprocess.run([*command, "--implementation=cp", *places, "-d", str(folder), *wanted], check=True)
