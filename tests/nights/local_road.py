"""Nights on this machine: `yanmo run` on a folder, or on a real S3 server behind a proxy that has outages."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from servers import s3
from servers.outage import Outage
from torture.disk import may_mount
from torture.place import FilePlace, Place, S3Place
from torture.stages import Run, start

from nights.plan import HERE, Night
from nights.road import CHANNEL, FORM, LATE, OPTIONS, NotHere, RunEnd
from nights.texts import write_files
from nights.variants import LIBRARY, SLEEP

OUTAGE_SECONDS = 10.0
_LITTLE_DISK = 1 << 20


class LocalRoad:
    """Runs as processes of this machine."""

    deck: Sequence[str] = HERE

    def __init__(self, place: Place, folder: Path, outage: Outage | None = None) -> None:
        self.place, self.folder, self.outage = place, folder, outage
        self.name = "folder" if outage is None else "s3"
        self._runs: list[Run] = []

    def lay(self, files: dict[str, bytes]) -> str:
        data = self.folder / "data"
        write_files(files, data)
        return str(data)

    def run(self, night: Night, sources: str, *, is_faulty: bool) -> RunEnd:
        fault = night.fault if is_faulty else ""
        if fault == "store" and self.outage is None:
            raise NotHere("a folder has no server that could answer 503")
        form = {**FORM, "data_sources": sources, "options": OPTIONS}
        fields = [word for name, value in form.items() for word in ("--set", f"{name}={value}")]
        words = ("--store", self.place.uri, "--channel", CHANNEL, *fields)
        with self._little_disk() if fault == "disk" else contextlib.nullcontext({}) as variables:
            if fault == "clock":
                variables = clock_variables(night.clock)
            run = start("yanmo_pipelines.run", words, self.place, self.folder, variables)
            self._runs.append(run)
            met = self._disturb(run, night) if fault in ("pod", "store") else ""
            code = run.wait()
        return RunEnd(is_done=code == 0, said=run.text[-2000:], met=met)

    def running(self) -> list[str]:
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
            return ""
        assert self.outage is not None
        self.outage.begin("status")
        time.sleep(OUTAGE_SECONDS)
        self.outage.end()
        return ""

    @contextmanager
    def _little_disk(self) -> Iterator[dict[str, str]]:
        """Scratch on a tmpfs of a megabyte: a real ENOSPC."""
        if self.outage is None:
            raise NotHere("a store on a folder works in the store itself, which later nights need")
        if reason := may_mount():
            raise NotHere(reason)
        folder = self.folder / "little"
        folder.mkdir(exist_ok=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_LITTLE_DISK}", "none", str(folder)], check=True
        )
        try:
            yield {"YANMO_SCRATCH": str(folder)}
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def clock_variables(offset: int) -> dict[str, str]:
    """Environment of a process whose clock is `offset` seconds off.

    Raises:
        NotHere: no libfaketime.
    """
    if not LIBRARY.exists():
        raise NotHere("needs libfaketime: apt-get install libfaketime")
    fake = {"LD_PRELOAD": str(LIBRARY), "FAKETIME": f"{offset:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return {**fake, "PYTHONPATH": str(SLEEP.parent)}


@contextmanager
def local_road(kind: str, folder: Path) -> Iterator[LocalRoad]:
    """Args:
    kind: `folder`, whose store stays in `folder` for later sittings, or `s3`, a server that ends with us.

    Raises:
        NotHere: no S3 server here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.absolute()
    if kind == "folder":
        yield LocalRoad(FilePlace(folder / "store"), folder)
        return
    if reason := s3.absent():
        raise NotHere(reason)
    server = s3.borrow(f"nights-{os.getpid()}")
    bucket = server.new_bucket()
    try:
        with Outage(server.endpoint) as outage:
            place = S3Place(
                server, bucket.partition("/")[0], f"{bucket}/nights".partition("/")[2], folder / "scratch"
            )
            place.endpoint = outage.endpoint
            yield LocalRoad(place, folder, outage)
    finally:
        server.remove_bucket(bucket)
