"""Keeps the newest checkpoint in a far store while the workers train: a lost node costs one interval."""

from __future__ import annotations

import logging
import shutil
import threading
from types import TracebackType

from yanmo.common.errors import EnvironmentFault
from yanmo.common.store.lease import Lease
from yanmo.common.store.work_folder import WorkFolder
from yanmo.train import job

log = logging.getLogger(__name__)
_POLL_SECONDS = 1.0


class Keeper:
    """While entered, a thread saves each new checkpoint of the work folder; the training does not wait."""

    def __init__(self, work: WorkFolder, lease: Lease) -> None:
        self._lease = lease
        self._work, self._root = work, work.path / job.CHECKPOINTS
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._saved = ""

    def restore(self) -> None:
        """Bring the saved checkpoint here if it is newer than those of this machine.

        Raises:
            DataError: it is damaged, and there is none here to go on from.
        """
        if self._work.restore(self._newest()):
            metrics = self._root / self._newest() / job.METRICS
            if metrics.exists():
                shutil.copyfile(metrics, self._work.path / job.METRICS)
            (self._root / "latest").write_text(self._newest(), encoding="utf-8")
        self._saved = self._newest()

    def save(self) -> None:
        """Save the newest checkpoint now.

        Raises:
            StorageError: it is on this machine only.
        """
        label = self._newest()
        folder = self._root / label
        if not label or label == self._saved or self._work.is_in_store:
            return
        metrics = self._work.path / job.METRICS
        if metrics.exists():  # its lines up to this step belong to the state
            shutil.copyfile(metrics, folder / job.METRICS)
        names = sorted(path.relative_to(self._work.path).as_posix() for path in folder.iterdir())
        self._work.save(label, names, self._lease)
        self._saved = label

    def _newest(self) -> str:
        """Name of the newest checkpoint on this machine; "" for none."""
        found = [path.name for path in self._root.glob("step-*") if (path / "manifest.json").is_file()]
        return max(found, default="")

    def _run(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            try:
                self.save()
            except FileNotFoundError:
                pass  # the workers replaced it by a newer one while it was being read
            except (OSError, EnvironmentFault) as error:
                log.warning("the last checkpoint is on this machine only: %s", error)

    def __enter__(self) -> Keeper:
        if not self._work.is_in_store:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, daemon=True, name="keeper")
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()
