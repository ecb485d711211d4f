"""Full disks: a small tmpfs under the store, or under scratch, that is enlarged after the failure."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.ground import Ground
from chaos.place import FilePlace, Place, survey
from chaos.plan import Case, Skip
from chaos.start import start_stage

ENOUGH = 256 << 20
_PAGE = 4096


@contextmanager
def small_disk(folder: Path, size: int = ENOUGH) -> Iterator[Path]:
    """A tmpfs at `folder`.

    Raises:
        Skip: none can be mounted here; says why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _resize(folder, size, "none")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def _resize(folder: Path, size: int, source: str = "") -> None:
    what = ["-t", "tmpfs", "-o", f"size={size}", source] if source else ["-o", f"remount,size={size}"]
    try:
        subprocess.run(["mount", *what, str(folder)], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or error
        raise Skip(f"a small disk (tmpfs) needs root's rights: {reason}".strip()) from error


def may_mount() -> str:
    """Why no tmpfs can be mounted here; empty where it can."""
    try:
        with small_disk(Path(f"/tmp/yanmo-mount-{os.getpid()}")):
            return ""
    except Skip as reason:
        return str(reason)


def cases(ground: Ground) -> Iterator[Case]:
    """Each stage meets a full disk some times, then has room and must end as if nothing had been."""
    what = "store" if ground.kind == "file" else "scratch"
    yield Case("disk", f"full {what}", lambda: _full(ground, ground.times(3, 1)))


def _full(ground: Ground, times: int) -> tuple[str, list[str]]:
    draw = random.Random(f"{ground.seed}/disk")
    codes: Counter[int] = Counter()
    findings: list[str] = []
    with small_disk(ground.folder / "disk") as disk, _place_on(ground, disk) as place:
        for stage in ground.stages:
            need = 400_000 if stage == "train" else 60_000  # about the bytes that it writes
            for _ in range(times):
                _resize(disk, shutil.disk_usage(disk).used + _PAGE + draw.randrange(need))
                run = start_stage(stage, place, ground.folder)
                codes[code := run.wait()] += 1
                if code not in (0, 78):
                    findings.append(f"{stage} on a full disk ended with {code}: {run.text[-1200:]}")
                findings += survey(place).faults
            _resize(disk, ENOUGH)
            run = start_stage(stage, place, ground.folder)
            if code := run.wait():
                findings.append(f"{stage} with room again ended with {code}: {run.text[-1200:]}")
        findings += ground.differences(place, may_leave=True)
    return f"runs by exit code: {dict(codes)}; with room again the same content", findings


@contextmanager
def _place_on(ground: Ground, disk: Path) -> Iterator[Place]:
    """A store on the small disk, or one whose scratch is there."""
    with ground.place() as place:
        if isinstance(place, FilePlace):
            yield FilePlace(disk / "store")
        else:
            place.scratch = disk / "scratch"
            yield place
