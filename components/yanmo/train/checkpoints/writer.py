"""Writes checkpoints in the background: the training only waits until its state is copied in memory.

One checkpoint is written at a time. The writing threads use no collectives: after each step the ranks
exchange some numbers anyway, and whether a rank is still writing is one of them. When none is, rank 0
commits. A kill before that leaves the earlier checkpoint.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from yanmo.train.backends.engine import Engine
from yanmo.train.backends.process_group import Collectives
from yanmo.train.checkpoints import checkpoint
from yanmo.train.checkpoints.checkpoint import Position
from yanmo.train.checkpoints.far_parts import FarParts
from yanmo.train.health.watchdog import RankFigures
from yanmo.train.job import PeerFailed

_POLL_SECONDS = 0.01


class Writer:
    """The checkpoints of one run on one rank; all ranks call every method (not the properties) together."""

    def __init__(
        self,
        engine: Engine,
        root: Path,
        collectives: Collectives,
        figures: RankFigures | None = None,
        far_parts: FarParts | None = None,
    ) -> None:
        """Args:
        far_parts: of several nodes without a common folder.
        figures: where it is counted what writing took, and what failed.
        """
        self._engine, self._root, self._collectives = engine, root, collectives
        self._figures, self._far_parts = figures or RankFigures(), far_parts
        self._began = 0.0
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._step: int | None = None
        """Step of the checkpoint whose parts are being written."""
        self._index = ""

    def clear(self) -> None:
        """Delete half-written checkpoints of a run that was killed."""
        if self._engine.rank == 0 or (self._far_parts and self._far_parts.is_first_here):
            for stale in self._root.glob(".tmp-*"):
                shutil.rmtree(stale, ignore_errors=True)

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is being written or committed."""
        return self._step is None and not self.is_writing

    @property
    def is_writing(self) -> bool:
        """Return whether this rank's thread is writing."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def has_failed(self) -> bool:
        """Return whether this rank's thread met an error, to be raised by `settle`."""
        return self._error is not None

    def begin(self, position: Position) -> None:
        """Copy the state and begin to write it; no other checkpoint may be in progress."""
        assert self.is_idle, "one checkpoint at a time"
        self._began = time.monotonic()
        tensors = checkpoint.snapshot(self._engine)
        self._index = checkpoint.index_of(self._engine, position)
        self._step = position.step
        folder, rank = self._temporary(position.step), self._engine.rank
        name, far = checkpoint.name_of(position.step), self._far_parts

        def write() -> None:
            checkpoint.write_rank(folder, rank, tensors)
            if far:
                far.send(folder, name, rank)

        self._start(write)

    def settle(self, *, writing: bool, failed: bool) -> None:
        """Commit when every rank has written.

        Args:
            writing: whether any rank's thread is writing.
            failed: whether any rank's thread met an error.

        Raises:
            OSError: this rank had no space or no permission.
            PeerFailed: another rank failed.
        """
        if failed:
            self._step = None
            raise self._error or PeerFailed(
                "another rank could not write its part of the checkpoint; its error says why"
            )
        if self._step is None or writing:
            return
        step, self._step = self._step, None
        if self._engine.rank == 0:
            temporary, index = self._temporary(step), self._index
            final = self._root / checkpoint.name_of(step)
            began, far, ranks = self._began, self._far_parts, self._engine.world_size

            def commit() -> None:
                if far:
                    far.bring(temporary, final.name, ranks)
                checkpoint.commit(temporary, final, index)
                self._figures.checkpoint_seconds = time.monotonic() - began

            self._start(commit)

    def finish(self) -> None:
        """Wait until a checkpoint that was begun is committed.

        Raises:
            OSError, PeerFailed: as in `settle`.
        """
        while True:
            writing, pending, failed = self._collectives.any(
                self.is_writing, self._step is not None, self.has_failed
            )
            self.settle(writing=writing, failed=failed)
            if not writing and not pending:
                return
            time.sleep(_POLL_SECONDS)

    def _temporary(self, step: int) -> Path:
        return self._root / f".tmp-{checkpoint.name_of(step)}"

    def _start(self, action: Callable[[], None]) -> None:
        def run() -> None:
            try:
                action()
            except Exception as error:
                self._error = error
                self._figures.checkpoint_failures += 1

        self._thread = threading.Thread(target=run, daemon=True, name="checkpoint")
        self._thread.start()
