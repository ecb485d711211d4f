"""Checkpoints of several nodes whose store is a server (s3://): no folder is common to them.

    <store>/runs/train/<key>/parts/<session>/step-00000120/rank-00003.safetensors, .json

Each rank of another node than 0 puts its part straight into the store, in the thread that writes it. Rank 0
brings the parts to its own disk when it commits: there the checkpoint is whole, is read after a rewind, and
goes up from there as with one node (uploader.py). Where a checkpoint is read, rank 0 sends the files to the
other nodes through the ranks' own network; that is rare, and a store that lags behind does not matter.

Cost: the parts of other nodes travel twice more, down to node 0 and up again, while the training goes on.
Alternative not taken: a manifest that names each part where its rank has put it. It saves that, and makes all
who read a checkpoint (newest, damage, rewinding, uploading, restoring) look in two places.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from yanmo.common.errors import StorageError
from yanmo.common.given_file import json_value
from yanmo.store.objects import ObjectStore, Wanted, amend
from yanmo.train.backends.process_group import Collectives

_CHUNK_BYTES = 64 << 20


@dataclass(frozen=True)
class FarParts:
    """What one rank does so that node 0's disk has whole checkpoints, and other nodes can read them."""

    store: ObjectStore
    prefix: str
    """`runs/train/<key>/parts/<session>`: of one start, so that a node that was cut off disturbs nobody."""
    node: int
    ranks: int
    """Of each node."""
    is_first_here: bool
    """Whether this rank is the first of its node: it writes what arrives."""

    def send(self, folder: Path, step: str, rank: int) -> None:
        """Put the part that this rank has written into the store, where another node commits it.

        Raises:
            StorageError: not now.
        """
        if self.node == 0:
            return
        name = f"rank-{rank:05d}"
        where = f"{self.prefix}/{step}"
        copies = self.store.writable(where)
        try:
            target = copies / f"{name}.safetensors"
            target.unlink(missing_ok=True)
            os.link(folder / target.name, target)
            self.store.publish(where, [target.name])
            entry = (folder / f"{name}.json").read_bytes()
            amend(self.store, f"{where}/{name}.json", lambda current: entry)
        finally:
            shutil.rmtree(copies, ignore_errors=True)
            for suffix in (".safetensors", ".json"):
                (folder / f"{name}{suffix}").unlink(missing_ok=True)

    def bring(self, folder: Path, step: str, world_size: int) -> None:
        """Put the parts of other nodes, which have all been sent, next to those of this one.

        Raises:
            StorageError: not now.
            DataError: one is missing or damaged.
        """
        for rank in range(self.ranks, world_size):
            name, where = f"rank-{rank:05d}", f"{self.prefix}/{step}"
            try:
                data, _ = self.store.read(f"{where}/{name}.json")
            except FileNotFoundError as error:
                raise StorageError(
                    f"{self.store.uri}/{where}/{name}.json: rank {rank} has not sent it"
                ) from error
            entry = json_value(data)
            file = f"{name}.safetensors"
            (path,) = self.store.fetch([Wanted(f"{where}/{file}", entry["bytes"], entry["sha256"])])
            shutil.copyfile(path, folder / file)
            self.store.release([path])
            with (folder / file).open("rb+") as copied:
                os.fsync(copied.fileno())
            (folder / f"{name}.json").write_bytes(data)
            for gone in (file, f"{name}.json"):
                self.store.delete(f"{where}/{gone}")

    def share(self, folder: Path, collectives: Collectives, *, is_first: bool) -> None:
        """Give all nodes a checkpoint that node 0 has; all ranks call it together.

        Args:
            folder: the checkpoint, as this rank's machine calls it.
            is_first: whether this is rank 0, whose files are sent.
        """
        writes = self.is_first_here and self.node > 0
        if writes:
            for old in folder.parent.glob("step-*"):
                shutil.rmtree(old, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
        files = sorted((p.name, p.stat().st_size) for p in folder.iterdir()) if is_first else []
        for name, size in collectives.from_first(files):
            with contextlib.ExitStack() as stack:
                file: Any = None
                if is_first or writes:
                    file = stack.enter_context((folder / name).open("rb" if is_first else "wb"))
                for begin in range(0, size, _CHUNK_BYTES):
                    count = min(_CHUNK_BYTES, size - begin)
                    data = bytearray(file.read(count)) if is_first else bytearray(count)
                    chunk = torch.frombuffer(data, dtype=torch.uint8)
                    collectives.from_first_rank(chunk)
                    if writes:
                        file.write(chunk.numpy().tobytes())
        collectives.any(False)  # a file is whole on every node before any rank reads it
