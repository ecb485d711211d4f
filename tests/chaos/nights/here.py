"""Nights on this machine: `yanmo run` on a folder, or on a real S3 server behind a proxy that has outages."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers.outage import Outage

from chaos.disk import small_disk
from chaos.ground import Ground
from chaos.nights.checks import CHANNEL
from chaos.nights.plan import Night
from chaos.nights.texts import write_files
from chaos.place import Place
from chaos.plan import Skip
from chaos.start import Run, start

FORM: dict[str, Any] = {
    "train_steps": 20,
    "train_seed": 1,
    "model_start": "champion",
    "model_vocabulary": 2048,
}
"""Fields of the run form, the same in every night: a night goes on from the champion."""
OPTIONS = (
    "train.layers=2 train.width=64 train.heads=1 train.head_width=64 train.feed_forward=128 "
    "train.batch_rows=16 train.ranks=1 train.warmup_steps=2 train.checkpoint_steps=4 train.log_every=5 "
    "train.valid_characters=2000 "
    "curate.workers=1 tokenize.workers=1 tokenize.agreement_sentences=50 "
    "evaluate.workers=1 evaluate.budget_documents=20 evaluate.samples=2 evaluate.sample_tokens=16 "
    "evaluate.bootstrap_draws=200 evaluate.baseline_characters=20000 promote.draws=2000"
)
"""A model of 340,000 parameters. The smallest work that still is all of the work."""
LATE = "too late"
"""The fault came when its stage was over."""
OUTAGE_SECONDS = 10.0
_LITTLE_DISK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """How one run of a night ended."""

    is_done: bool
    said: str = ""
    """The end of its log where it failed."""
    met: str = ""
    """LATE where the fault hit nothing."""


class Here:
    """Runs as processes of this machine."""

    def __init__(self, place: Place, folder: Path, outage: Outage | None = None) -> None:
        self.place, self.folder, self.outage = place, folder, outage
        self._runs: list[Run] = []

    def lay(self, files: dict[str, bytes]) -> str:
        """Make these the channel's data, and nothing else; returns `data_sources`."""
        write_files(files, self.folder / "data")
        return str(self.folder / "data")

    def run(self, night: Night, sources: str, *, is_faulty: bool) -> RunEnd:
        """One run of the night's pipeline to its end, with the night's fault where it is to be.

        Raises:
            Skip: the fault cannot be made here.
        """
        fault = night.fault if is_faulty else ""
        if fault in ("store", "disk") and self.outage is None:
            raise Skip("a folder has no server, and the work lies in the store itself")
        form = {**FORM, "data_sources": sources, "options": OPTIONS}
        fields = [word for name, value in form.items() for word in ("--set", f"{name}={value}")]
        words = ("--store", self.place.uri, "--channel", CHANNEL, *fields)
        variables = {"YANMO_CLOCK_OFFSET": str(night.clock)} if fault == "clock" else {}
        with contextlib.ExitStack() as stack:
            if fault == "disk":
                disk = stack.enter_context(small_disk(self.folder / "little", _LITTLE_DISK))
                variables["YANMO_SCRATCH"] = str(disk)
            run = start("yanmo_pipelines.run", words, self.place, self.folder, variables)
            self._runs.append(run)
            met = self._disturb(run, night) if fault in ("pod", "store") else ""
            code = run.wait()
        return RunEnd(is_done=code == 0, said=run.text[-2000:], met=met)

    def running(self) -> list[str]:
        """Processes of our runs that have not ended."""
        return [name for run in self._runs for name in run.orphans]

    def _disturb(self, run: Run, night: Night) -> str:
        """Once the stage makes something; LATE where it never does."""
        begins = re.compile(rf"^\S+ {night.stage} +making ", re.M)
        while run.process.poll() is None and not begins.search(run.text):
            time.sleep(0.05)
        time.sleep(night.wait)
        if run.process.poll() is not None:
            return LATE
        if night.fault == "pod":
            run.kill_all()
        elif self.outage is not None:
            self.outage.begin("status")
            time.sleep(OUTAGE_SECONDS)
            self.outage.end()
        return ""


@contextmanager
def here(ground: Ground) -> Iterator[Here]:
    """The road on a ground's kind of store, with an empty store."""
    with contextlib.ExitStack() as stack:
        outage = stack.enter_context(Outage(ground.server.endpoint)) if ground.server else None
        place = stack.enter_context(ground.place(outage.endpoint if outage else ""))
        yield Here(place, ground.folder, outage)
