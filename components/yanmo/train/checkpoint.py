"""Checkpoints that a kill at any moment cannot spoil, in a format that any number of ranks reads.

    checkpoints/step-00000120/rank-00000.safetensors   per parameter: weight and optimizer states (fp32)
                              index.json               position, identity, shapes, which rank has what
                              manifest.json            bytes and sha256 of the files above

Each rank writes the parts it owns under a temporary name; after a barrier rank 0 writes the manifest, syncs,
renames the folder and moves the pointer `latest`. The loader takes the newest folder whose manifest verifies,
so a half-written one, or one cut short later, only costs the steps since the one before. No pickle.
DeepSpeed's own `latest` may name a checkpoint that is not there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from yanmo.common.errors import DataError
from yanmo.common.store.manifest import file_sha256
from yanmo.train.engine import Engine

log = logging.getLogger(__name__)

_KEPT = 2
_PREFIX = "step-"


@dataclass(frozen=True)
class Position:
    """Where a run stands."""

    step: int
    """Optimizer steps done."""
    identity: dict[str, str]
    """What the checkpoint belongs to, by name: model, cache, plan, options. All must agree to resume."""
    progress: dict[str, Any]
    """What the loop wants back: sums of the open interval, seconds of training."""


def save(engine: Engine, root: Path, position: Position) -> Path:
    """Write and commit a checkpoint; all ranks call it together.

    Raises:
        OSError: no space, no permission; nothing half-written is taken for a checkpoint later.
    """
    final = root / f"{_PREFIX}{position.step:08d}"
    temporary = root / f".tmp-{final.name}"
    if engine.rank == 0:
        for stale in root.glob(".tmp-*"):
            shutil.rmtree(stale, ignore_errors=True)
        temporary.mkdir(parents=True, exist_ok=True)
    _together(engine, lambda: None)
    written: list[Any] = [None] * engine.world_size
    entry = _together(engine, lambda: _write_rank(engine, temporary))
    dist.all_gather_object(written, entry)
    if engine.rank == 0:
        problem = _attempt(lambda: _commit(engine, temporary, final, position, written))
    else:
        problem = None
    _agree(engine, problem)
    return final


def _write_rank(engine: Engine, folder: Path) -> dict[str, Any]:
    """Write this rank's states; its file's manifest entry."""
    tensors: dict[str, Tensor] = {"torch_rng_state": torch.get_rng_state()}
    for part in engine.parts():
        tensors[f"{part.kind}/{part.start}/{part.name}"] = part.values.detach().cpu().clone()
    path = folder / f"rank-{engine.rank:05d}.safetensors"
    save_file(tensors, path)
    return _entry(path)


def _entry(path: Path) -> dict[str, Any]:
    """Make a file durable and describe it."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": file_sha256(path)}


def _commit(
    engine: Engine, temporary: Path, final: Path, position: Position, written: list[dict[str, Any]]
) -> None:
    index = {
        "format": "yanmo-checkpoint-2",
        "step": position.step,
        "identity": position.identity,
        "progress": position.progress,
        "ranks": engine.world_size,
        "updates": engine.updates,
    }
    path = temporary / "index.json"
    path.write_text(json.dumps(index, indent=1), encoding="utf-8")
    manifest = temporary / "manifest.json"
    manifest.write_text(json.dumps({"files": [*written, _entry(path)]}, indent=1), encoding="utf-8")
    _entry(manifest)
    _sync_folder(temporary)
    if final.exists():
        shutil.rmtree(final)
    temporary.rename(final)
    pointer = final.parent / "latest.tmp"
    pointer.write_text(final.name, encoding="utf-8")
    _entry(pointer)
    pointer.replace(final.parent / "latest")
    _sync_folder(final.parent)
    for old in _folders(final.parent)[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _attempt(action: Callable[[], Any]) -> Exception | None:
    try:
        action()
    except Exception as error:
        return error
    return None


def _together(engine: Engine, action: Callable[[], Any]) -> Any:
    """Do `action` on every rank; if it fails on one, raise on all, instead of waiting at a barrier."""
    result: list[Any] = []
    problem = _attempt(lambda: result.append(action()))
    _agree(engine, problem)
    return result[0]


def _agree(engine: Engine, problem: Exception | None) -> None:
    failed = torch.tensor([float(problem is not None)], device=engine.device)
    dist.all_reduce(failed)
    if problem is not None:
        raise problem
    if failed.item():
        raise PeerFailed("another rank could not write its part of the checkpoint; its error says why")


class PeerFailed(RuntimeError):
    """Another rank failed and says why; this one only stops."""


def _folders(root: Path) -> list[Path]:
    """Checkpoints by name, newest first; whether they are whole is not looked at."""
    return sorted((p for p in root.glob(f"{_PREFIX}*") if p.is_dir()), reverse=True)


def fault(folder: Path) -> str | None:
    """What is wrong with a checkpoint, in words; None when it is whole."""
    try:
        files = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
        for entry in files:
            path = folder / entry["name"]
            size = path.stat().st_size
            if size != entry["bytes"]:
                return f"{entry['name']}: expected {entry['bytes']} bytes, found {size}"
            if file_sha256(path) != entry["sha256"]:
                return f"{entry['name']}: changed since it was written"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (ValueError, KeyError, TypeError) as error:
        return f"manifest.json is damaged ({error!r})"
    return None


def newest(root: Path) -> Path | None:
    """The newest whole checkpoint; a damaged one is passed over with a warning.

    Raises:
        DataError: there are checkpoints and all are damaged.
    """
    folders = _folders(root)
    for folder in folders:
        problem = fault(folder)
        if problem is None:
            return folder
        log.warning("checkpoint %s is damaged (%s); trying the one before", folder, problem)
    if folders:
        raise DataError(
            f"all {len(folders)} checkpoints in {root} are damaged; delete that folder to start anew"
        )
    return None


def load(engine: Engine, folder: Path, identity: dict[str, str]) -> Position:
    """Put a checkpoint's state into the engine; any number of ranks may have written it.

    Raises:
        DataError: it belongs to another model, cache or options; says which.
    """
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    _check_identity(folder, index, identity)
    files: list[Any] = [safe_open(p, framework="pt") for p in sorted(folder.glob("rank-*.safetensors"))]
    places = {key: file for file in files for key in file.keys()}  # noqa: SIM118
    parts: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for key in places:
        if key != "torch_rng_state":
            kind, start, name = key.split("/", 2)
            parts.setdefault((name, kind), []).append((int(start), key))

    def read(name: str, kind: str, start: int, count: int) -> Tensor:
        pieces = [places[key].get_tensor(key) for _, key in sorted(parts[name, kind])]
        return torch.cat(pieces)[start : start + count]

    engine.restore(read, index["updates"])
    if engine.rank < len(files):
        torch.set_rng_state(files[engine.rank].get_tensor("torch_rng_state"))
    return Position(index["step"], index["identity"], index["progress"])


def _check_identity(folder: Path, index: dict[str, Any], identity: dict[str, str]) -> None:
    if index.get("format") != "yanmo-checkpoint-2":
        raise DataError(f"{folder}: expected format yanmo-checkpoint-2, found {index.get('format')!r}")
    for name, value in identity.items():
        found = index["identity"].get(name)
        if found != value:
            raise DataError(
                f"{folder}: made with another {name}: expected {value}, found {found}; delete the folder to "
                "start anew, or go back to what it was made with"
            )


def digest(value: Any) -> str:
    """A short digest of a JSON-able value, for `Position.identity`."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
