"""What tests of a stage's runtime share."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
import toy_stage

from yanmo.stage.run import main
from yanmo.store.file_store import FileStore

Run = Callable[..., int]


@pytest.fixture
def toy(store: FileStore) -> Run:
    """Runs the toy stage in this process; returns its exit code."""

    def run(*flags: str) -> int:
        old = signal.getsignal(signal.SIGTERM)
        try:
            argv = [f"--store={store.root}", "--metrics-port=-1", *flags]
            return main(toy_stage.STAGE, toy_stage.STEPS, argv)
        finally:
            signal.signal(signal.SIGTERM, old)

    return run
