"""A training in this process."""

import pytest

from yanmo.store.opening import open_store
from yanmo.store.pointers import read_pointer
from yanmo.train import job
from yanmo.train.config import TrainConfig
from yanmo.train.job import WorkerJob


@pytest.fixture
def train(store, tmp_path, tiny):
    """Run a training in this process: train(folder, stop_at=None, **options) -> its status."""
    from yanmo.train import loop, worker

    def run(folder: str, stop_at: int | None = None, **options) -> job.Status:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        reference = read_pointer(open_store(str(store)), "dev", "tokenize")
        config = TrainConfig(**{**tiny, "store": str(store), **options})
        (place / job.STOP).unlink(missing_ok=True)
        step = loop.Loop._one_step

        def one_step(self):
            if self.step + 1 == stop_at:
                (place / job.STOP).touch()
            return step(self)

        loop.Loop._one_step = one_step
        try:
            return worker.train_rank(WorkerJob(config, str(store), reference, None, place), 0)
        finally:
            loop.Loop._one_step = step

    return run
