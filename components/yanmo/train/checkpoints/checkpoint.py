"""Checkpoints that a kill at any moment cannot damage, in a format that any number of ranks can read.

    checkpoints/step-00000120/rank-00000.safetensors   weights and optimizer states that rank 0 owns (fp32):
                                                       tensors `<kind>/<first element>/<parameter>`; and the
                                                       states of its random generators
                              index.json               step, identity, state of the loop, number of ranks
                              manifest.json            bytes and sha256 of the files above

Each rank writes what it owns into a folder with a temporary name; when all have (writer.py), rank 0 writes
the manifest, syncs, renames the folder and sets the pointer `latest`. The loader takes the newest folder
whose files agree with its manifest, so a half-written or truncated one only costs the steps since the one
before it. There is no pickle. DeepSpeed's own checkpoints are not used: their `latest` may name one that is
not there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from yanmo.common.errors import DataError, StorageError, wrong_in
from yanmo.common.given_file import json_value
from yanmo.model.weights_file import write_tensors
from yanmo.store.durable_files import fsync_dir
from yanmo.store.manifest import file_sha256
from yanmo.train.backends.engine import Engine
from yanmo.train.job import is_calm

log = logging.getLogger(__name__)

BEST = "best"
_FORMAT = "yanmo-checkpoint-2"
_KEPT = 2
"""Newest checkpoints that are always kept."""
_PREFIX = "step-"
_SHARED_SECONDS, _LOOK_SECONDS = 90.0, 0.2
"""How long a file that another node has written may be unseen: NFS keeps what it knows of a folder for 60 s
by default (nfs(5), acdirmax)."""
_RNG, _CUDA_RNG = "torch_rng_state", "cuda_rng_state"


@dataclass(frozen=True)
class Position:
    """Where a training is: its state other than tensors."""

    step: int
    """Optimizer steps done."""
    identity: dict[str, str]
    """Digests of token cache, data plan, model shape and options, by name; a resume needs the same ones."""
    progress: dict[str, Any]
    """State of the loop, as JSON values (`Resumable`): sums of the interval, rewinds, best validation ..."""


def snapshot(engine: Engine) -> dict[str, Tensor]:
    """Copies, on the CPU, of the state that this rank owns, under the names that its file gives them."""
    tensors: dict[str, Tensor] = {_RNG: torch.get_rng_state()}
    if engine.device.type == "cuda":
        tensors[_CUDA_RNG] = torch.cuda.get_rng_state(engine.device)
    for part in engine.parts():
        values = part.values.detach()
        tensors[f"{part.kind}/{part.start}/{part.name}"] = values.clone() if values.is_cpu else values.cpu()
    return tensors


def write_rank(folder: Path, rank: int, tensors: dict[str, Tensor]) -> None:
    """Write and sync a rank's file and, next to it, the file's entry for the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank-{rank:05d}.safetensors"
    write_tensors(tensors, path)
    path.with_suffix(".json").write_text(json.dumps(_entry(path)), encoding="utf-8")


def index_of(engine: Engine, position: Position) -> str:
    """Return the text of index.json for the engine's current state."""
    index = {
        "format": _FORMAT,
        "step": position.step,
        "identity": position.identity,
        "progress": position.progress,
        "ranks": engine.world_size,
        "updates": engine.updates,
    }
    if scale := engine.loss_scale():
        index["loss_scale"] = scale
    return json.dumps(index, indent=1)


def commit(temporary: Path, final: Path, index: str) -> None:
    """Make a checkpoint whose ranks have all written the newest one, and delete old ones.

    Args:
        temporary: the folder that the ranks wrote into.
        final: its name from now on.
        index: the text of index.json.

    Raises:
        OSError: no space, no permission; nothing half-written will be read as a checkpoint.
    """
    entries = [_of_rank(temporary, rank) for rank in range(json_value(index)["ranks"])]
    path = temporary / "index.json"
    path.write_text(index, encoding="utf-8")
    manifest = temporary / "manifest.json"
    manifest.write_text(json.dumps({"files": [*entries, _entry(path)]}, indent=1), encoding="utf-8")
    _entry(manifest)
    fsync_dir(temporary)
    if final.exists():
        shutil.rmtree(final)
    temporary.rename(final)
    set_pointer(final.parent, "latest", final.name)
    prune(final.parent)


def _of_rank(temporary: Path, rank: int) -> dict[str, Any]:
    """Return what a rank says of its file; of another node's, a shared folder may show it only after a while.

    Raises:
        StorageError: it is not shown.
    """
    path, until = temporary / f"rank-{rank:05d}.json", time.monotonic() + _SHARED_SECONDS
    while True:
        try:
            found = dict(json_value(path.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError) as error:
            if time.monotonic() > until:
                raise StorageError(
                    f"{path}: rank {rank} has written its part of the checkpoint, and it is not here after "
                    f"{_SHARED_SECONDS:.0f} s: --store has to be one folder that all nodes share"
                ) from error
            time.sleep(_LOOK_SECONDS)
        else:
            path.unlink()
            return found


def set_pointer(root: Path, pointer: str, name: str) -> None:
    """Make the pointer `latest` or `best` name a checkpoint."""
    path = root / f"{pointer}.tmp"
    path.write_text(name, encoding="utf-8")
    _entry(path)
    path.replace(root / pointer)
    fsync_dir(root)


def read_pointer(root: Path, pointer: str) -> Path | None:
    """Return the checkpoint that a pointer names; None if there is none."""
    try:
        folder = root / (root / pointer).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return folder if folder.name.startswith(_PREFIX) and folder.is_dir() else None


def prune(root: Path) -> None:
    """Delete checkpoints, except the two newest, the best, and one to rewind to.

    The one to rewind to is the newest from before any trouble: with a checkpoint every few steps, all newer
    ones may have been made while the training was going wrong.
    """
    folders, best = _folders(root), read_pointer(root, BEST)
    calm = next((folder for folder in folders if is_calm(_index(folder).get("progress", {}))), None)
    for old in folders[_KEPT:]:
        if old not in (best, calm):
            shutil.rmtree(old, ignore_errors=True)


def _index(folder: Path) -> dict[str, Any]:
    try:
        return dict(json_value((folder / "index.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def drop_after(root: Path, step: int) -> None:
    """Delete the checkpoints of later steps, and unfinished ones, after a rewind."""
    for folder in (*_folders(root), *root.glob(".tmp-*")):
        if folder.name.startswith(".tmp-") or step_of(folder) > step:
            shutil.rmtree(folder, ignore_errors=True)


def step_of(folder: Path) -> int:
    """Return the step that a checkpoint was made after."""
    return int(folder.name.removeprefix(_PREFIX))


def name_of(step: int) -> str:
    """Return the name of the checkpoint made after a step."""
    return f"{_PREFIX}{step:08d}"


def _entry(path: Path) -> dict[str, Any]:
    """Sync a file to disk; returns its entry for the manifest."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": file_sha256(path)}


def _folders(root: Path) -> list[Path]:
    """Return the folders of all checkpoints, newest first, damaged ones included."""
    return sorted((p for p in root.glob(f"{_PREFIX}*") if p.is_dir()), reverse=True)


def damage(folder: Path) -> str | None:
    """Return what is wrong with a checkpoint, in words; None if it is whole."""
    try:
        files = json_value((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
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
        return f"manifest.json is damaged ({wrong_in(error)})"
    return None


def newest(root: Path, before_step: int | None = None) -> Path | None:
    """Return the newest whole checkpoint; damaged ones are skipped with a warning.

    Args:
        before_step: looks only at checkpoints of earlier steps than this one.

    Raises:
        DataError: there are checkpoints, and all of them are damaged.
    """
    folders = [f for f in _folders(root) if before_step is None or step_of(f) < before_step]
    for folder in folders:
        problem = damage(folder)
        if problem is None:
            return folder
        log.warning("checkpoint %s is damaged (%s); trying the one before", folder, problem)
    if folders:
        raise DataError(
            f"all {len(folders)} checkpoints in {root} are damaged; delete that folder to start from step 0"
        )
    return None


def load(engine: Engine, folder: Path, identity: dict[str, str]) -> Position:
    """Load a checkpoint's state into the engine; any number of ranks may have written it.

    Raises:
        DataError: it was made with another token cache, data plan, model shape or options; says which.
    """
    index = json_value((folder / "index.json").read_text(encoding="utf-8"))
    _check_identity(folder, index, identity)
    files: list[Any] = [safe_open(folder / name, framework="pt") for name in _rank_files(folder)]
    places = {key: file for file in files for key in file.keys() if "/" in key}  # noqa: SIM118
    runs: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for key in places:
        kind, start, name = key.split("/", 2)
        runs.setdefault((name, kind), []).append((int(start), key))

    def read(name: str, kind: str, start: int, count: int) -> Tensor:
        pieces = [places[key].get_tensor(key) for _, key in sorted(runs[name, kind])]
        return torch.cat(pieces)[start : start + count]

    engine.restore(read, index["updates"])
    engine.set_loss_scale(index.get("loss_scale", {}))
    if engine.rank < len(files):
        _restore_random(engine, files[engine.rank])
    return Position(index["step"], index["identity"], index["progress"])


def _rank_files(folder: Path) -> list[str]:
    """Return the names of the ranks' files, by the manifest: on NFS a list of a folder may be old."""
    files = json_value((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
    return sorted(entry["name"] for entry in files if entry["name"].endswith(".safetensors"))


def _restore_random(engine: Engine, file: Any) -> None:
    torch.set_rng_state(file.get_tensor(_RNG))
    if engine.device.type == "cuda" and _CUDA_RNG in file.keys():  # noqa: SIM118
        torch.cuda.set_rng_state(file.get_tensor(_CUDA_RNG), engine.device)


def _check_identity(folder: Path, index: dict[str, Any], identity: dict[str, str]) -> None:
    if index.get("format") != _FORMAT:
        raise DataError(f"{folder}: expected format {_FORMAT}, found {index.get('format')!r}")
    for name, value in identity.items():
        found = index["identity"].get(name)
        if found != value:
            raise DataError(
                f"{folder}: made with another {name}: expected {value}, found {found}; delete the folder to "
                "start from step 0, or go back to the options and inputs it was made with"
            )


def digest(value: Any) -> str:
    """Return a short digest of a JSON value, for `Position.identity`."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
