"""Full disks: a small tmpfs under the store, or under scratch, that is enlarged after the failure."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torture.ground import Case, Ground, Record
from torture.place import FilePlace, Place, survey
from torture.stages import start_stage

_ENOUGH = 256 << 20
_PAGE = 4096


def run(ground: Ground, record: Record, times: int = 3) -> None:
    """Each stage meets a full disk `times` times, then has room and must end as if nothing had been."""
    what = "store" if ground.kind == "file" else "scratch"
    record.case("disk", f"full {what}", lambda: _full(ground, what, times))


def may_mount() -> str:
    """Why no tmpfs can be mounted here; empty where it can."""
    if os.getuid():
        return "needs root, to mount a tmpfs"
    probe = Path(f"/tmp/yanmo-mount-{os.getpid()}")
    probe.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "none", str(probe)], check=True, capture_output=True)
        subprocess.run(["umount", str(probe)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"cannot mount a tmpfs: {error}"
    finally:
        probe.rmdir()
    return ""


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A tmpfs at `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_ENOUGH}", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def _resize(folder: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)


def _full(ground: Ground, what: str, times: int) -> Case | tuple[str, list[str]]:
    reason = may_mount()
    if reason:
        return Case("disk", f"full {what}", reason, skipped=True)
    draw = random.Random(f"{ground.seed}/disk")
    codes: dict[int, int] = {}
    findings: list[str] = []
    with small_disk(ground.folder / "disk") as disk, _place_on(ground, disk) as place:
        for stage in ground.stages:
            need = _need(ground, stage)
            for _ in range(times):
                used = shutil.disk_usage(disk).used
                _resize(disk, used + _PAGE + draw.randrange(need))
                run = start_stage(stage, place, ground.folder)
                code = run.wait()
                codes[code] = codes.get(code, 0) + 1
                if code not in (0, 78):
                    findings.append(f"{stage} on a full disk ended with {code}: {run.text[-1200:]}")
                findings += survey(place).faults
            _resize(disk, _ENOUGH)
            run = start_stage(stage, place, ground.folder)
            if code := run.wait():
                findings.append(f"{stage} with room again ended with {code}: {run.text[-1200:]}")
        found, expected = survey(place).digests, ground.profile.survey.digests
        findings += [f"{n}: other content than undisturbed" for n in expected if found.get(n) != expected[n]]
    return f"runs by exit code: {codes}" + ("" if findings else "; same digests"), findings


def _need(ground: Ground, stage: str) -> int:
    """About the bytes that a stage writes; a full disk comes at some moment of it."""
    return 400_000 if stage == "train" else 60_000


@contextmanager
def _place_on(ground: Ground, disk: Path) -> Iterator[Place]:
    """A store on the small disk, or one whose scratch is there."""
    with ground.place() as place:
        if isinstance(place, FilePlace):
            yield FilePlace(disk / "store")
        else:
            place.scratch = disk / "scratch"
            yield place
