"""Uploads the newest checkpoint to a remote store during training: a lost node costs one interval.

With it go the checkpoint of the best validation, which early stopping returns to at the end, and, if the
newest one was made while the training was going wrong, one to rewind to. It does not import torch, as the
supervisor runs it.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from yanmo.common.errors import DataError, EnvironmentFault, LeaseLost
from yanmo.common.given_file import json_value
from yanmo.common.waiting import Cancellation, under
from yanmo.stage.exporter import Telemetry
from yanmo.store.runs.lease import Lease
from yanmo.store.runs.work_folder import WorkFolder
from yanmo.train import job
from yanmo.train.job import is_calm

log = logging.getLogger(__name__)
_POLL_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
"""Longest pause between tries while the store cannot be reached; each try is a line of the log."""
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Kept:
    """A checkpoint that a training can go on from."""

    name: str
    saved_at: float
    """Unix time."""
    is_in_store: bool
    """Whether another machine finds it too."""

    @property
    def shown(self) -> str:
        """`step 120`, and where it is on this machine alone, that."""
        step = int(self.name.removeprefix("step-"))
        return f"step {step}" + ("" if self.is_in_store else ", on this machine alone")


class Uploader:
    """A context in which a thread uploads each new checkpoint of the work folder; training does not wait."""

    def __init__(self, work: WorkFolder, lease: Lease, telemetry: Telemetry | None = None) -> None:
        """Args:
        telemetry: where failures are counted.
        """
        self._lease, self._telemetry = lease, telemetry
        self._work, self._root = work, work.path / job.CHECKPOINTS
        self._stop, self._cancellation = threading.Event(), Cancellation()
        self._thread: threading.Thread | None = None
        self._saved = ""
        self._lost: LeaseLost | None = None

    def restore(self) -> None:
        """Download the uploaded checkpoint if it is newer than those on this machine.

        Raises:
            DataError: it is damaged, and this machine has none.
        """
        before = self._newest()
        try:
            is_new = self._work.restore(self._label(before))
        except DataError as error:
            if not before:
                raise
            log.warning("%s; going on from %s, which is on this machine", error, before)
            is_new = False
        if is_new:
            newest = max(self._whole(), key=self._label)
            metrics = self._root / newest / job.METRICS
            if metrics.exists():
                shutil.copyfile(metrics, self._work.path / job.METRICS)
            for stale in list(self._whole()):  # from before a rewind on another machine
                if stale > newest:
                    shutil.rmtree(self._root / stale)
        self._saved = self._label(self._newest())

    @property
    def label(self) -> str:
        """Names the newest checkpoint, here or uploaded, so that a later one sorts after it; "" for none.

        Raises:
            DataError: the record of what was uploaded is damaged.
        """
        return max(self._label(self._newest()), self._work.saved_label)

    @property
    def work_name(self) -> str:
        """Return where the work lies in the store."""
        return self._work.name

    def newest(self) -> Kept | None:
        """Return the newest whole checkpoint; None where there is none."""
        name = self._newest()
        try:
            saved_at = (self._root / name / _MANIFEST).stat().st_mtime if name else 0.0
        except OSError:  # replaced by a newer one meanwhile
            return None
        is_safe = self._work.is_in_store or self._label(name) == self._saved
        return Kept(name, saved_at, is_safe) if name else None

    def save(self) -> None:
        """Upload the newest checkpoint now.

        Raises:
            StorageError: the upload failed; the checkpoint is on this machine only.
        """
        name = self._newest()
        label = self._label(name)
        if not name or label == self._saved or self._work.is_in_store:
            return
        metrics = self._work.path / job.METRICS
        if metrics.exists():  # its lines up to this step belong to the state
            shutil.copyfile(metrics, self._root / name / job.METRICS)
        names = [file for other in self._companions(name) for file in self._files(other)]
        self._work.save(label, names + self._files(name), self._lease)
        self._saved = label

    def check(self) -> None:
        """Check that this run still holds the lease of its key.

        Raises:
            LeaseLost: another run has taken over the key, so that this one would train in vain.
        """
        if self._lost:
            raise self._lost
        if self._lease.is_lost:
            self._lease.check()

    def _companions(self, name: str) -> list[str]:
        """Checkpoints to upload with this one: the best, and the newest from before any trouble."""
        best = str(self._progress(name).get("best_checkpoint", ""))
        calm = next((other for other in self._whole() if is_calm(self._progress(other))), "")
        found = [other for other in dict.fromkeys((best, calm)) if other and other != name]
        return [other for other in found if self._is_whole(other)]

    def _files(self, name: str) -> list[str]:
        """Return a checkpoint's files, the manifest last, so that an interrupted restore does not look
        complete."""
        files = [path for path in (self._root / name).iterdir() if not path.name.startswith(".")]
        files.sort(key=lambda path: (path.name == _MANIFEST, path.name))
        return [path.relative_to(self._work.path).as_posix() for path in files]

    def _whole(self) -> Iterator[str]:
        """Return the names of the whole checkpoints on this machine, newest first."""
        names = sorted((path.name for path in self._root.glob("step-*")), reverse=True)
        return (name for name in names if self._is_whole(name))

    def _newest(self) -> str:
        """Return name of the newest whole checkpoint on this machine; "" if there is none."""
        return next(self._whole(), "")

    def _is_whole(self, name: str) -> bool:
        """Return whether the files have the manifest's sizes: a cut checkpoint is downloaded again."""
        folder = self._root / name
        try:
            files = json_value((folder / _MANIFEST).read_text(encoding="utf-8"))["files"]
            return all((folder / file["name"]).stat().st_size == file["bytes"] for file in files)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _label(self, name: str) -> str:
        """Return a key that sorts states by age: after a rewind, the state of an earlier step is the newer
        one."""
        rewinds = self._progress(name).get("rewinds", 0) if name else 0
        return f"step-~{rewinds:03d}-{name}" if rewinds else name

    def _progress(self, name: str) -> dict[str, Any]:
        path: Path = self._root / name / "index.json"
        try:
            return dict(json_value(path.read_text(encoding="utf-8"))["progress"])
        except (ValueError, KeyError, TypeError):  # damaged: the workers skip it
            return {}

    def _run(self) -> None:
        pause = _POLL_SECONDS
        while not self._stop.wait(pause):
            try:
                with under(self._cancellation):
                    self.save()
                pause = _POLL_SECONDS
            except FileNotFoundError:
                pass  # the workers replaced it by a newer one while it was being read
            except LeaseLost as error:
                self._lost = error
                return
            except (OSError, EnvironmentFault, DataError) as error:
                if self._stop.is_set():  # cancelled
                    return
                log.warning("the last checkpoint is on this machine only: %s", error)
                if self._telemetry:
                    self._telemetry.add("checkpoint_failures", what="upload")
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def __enter__(self) -> Uploader:
        if not self._work.is_in_store:
            self._stop.clear()
            self._cancellation = Cancellation()
            self._thread = threading.Thread(target=self._run, daemon=True, name="uploader")
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._cancellation.set()
        if self._thread:
            self._thread.join()
