"""Checkpoints on their way to a far store and back, against a real S3 server."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from yanmo.common.errors import DataError, LeaseLost
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store
from yanmo.store.runs.lease import Lease
from yanmo.store.runs.work_folder import WorkFolder
from yanmo.train import job
from yanmo.train.checkpoints.uploader import Uploader

NAME = "runs/train/key"


@pytest.fixture
def far(s3_server, s3_place, tmp_path, monkeypatch) -> Callable[[str], ObjectStore]:
    """Opens one store on S3 as a machine of its own would: far("node")."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    prefix = hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]

    def open_on(node: str) -> ObjectStore:
        monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / node))
        return open_store(f"s3://{s3_place}/{prefix}")

    return open_on


def uploader_on(far, node: str, attempt: str, old: Lease | None = None) -> tuple[Uploader, Path, Lease]:
    """A uploader, its checkpoints' folder, and its lease; takes over from `old`."""
    if old:
        old.release()
    store = far(node)
    lease = Lease(store, f"{NAME}/LEASE.json", attempt)
    assert lease.acquire()
    work = WorkFolder(store, NAME)
    return Uploader(work, lease), work.path / job.CHECKPOINTS, lease


def checkpoint(root: Path, step: int, weights: str = "", **progress) -> str:
    """A folder as the writer leaves it."""
    folder = root / f"step-{step:08d}"
    folder.mkdir(parents=True)
    (folder / "index.json").write_text(json.dumps({"step": step, "progress": progress}))
    (folder / "rank-00000.safetensors").write_text(weights or f"weights of step {step}")
    files = [{"name": path.name, "bytes": path.stat().st_size} for path in sorted(folder.iterdir())]
    (folder / "manifest.json").write_text(json.dumps({"files": files}))
    (root.parent / job.METRICS).write_text(f'{{"step": {step}}}\n')
    return folder.name


def steps(root: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in root.glob("step-*"))


def test_the_best_model_travels_with_the_newest_and_only_once(far, monkeypatch):
    uploader, root, lease = uploader_on(far, "here", "one")
    best = checkpoint(root, 10)
    uploader.save()
    checkpoint(root, 20, best_checkpoint=best)
    uploader.save()
    sent: list[str] = []
    kind = type(lease.store)
    publish = kind.publish
    with monkeypatch.context() as patch:
        patch.setattr(kind, "publish", lambda s, p, names: (sent.extend(names), publish(s, p, names))[1])
        checkpoint(root, 30, best_checkpoint=best)
        uploader.save()
    assert sent and not [name for name in sent if best in name]
    there, root, lease = uploader_on(far, "there", "two", lease)
    there.restore()
    assert steps(root) == [10, 30]
    assert (root.parent / job.METRICS).read_text() == '{"step": 30}\n'
    checkpoint(root, 40, best_checkpoint=best)
    there.save()  # another attempt, which has sent nothing yet
    third, root, lease = uploader_on(far, "third", "three", lease)
    third.restore()
    assert steps(root) == [10, 40]
    lease.release()


def test_in_trouble_a_checkpoint_from_before_it_travels_too(far):
    uploader, root, lease = uploader_on(far, "here", "one")
    checkpoint(root, 10, health={"bad": 0, "high": 0})
    checkpoint(root, 20, health={"bad": 0, "high": 0})
    checkpoint(root, 30, health={"bad": 0, "high": 2})
    checkpoint(root, 40, health={"bad": 0, "high": 4})
    uploader.save()
    there, root, lease = uploader_on(far, "there", "two", lease)
    there.restore()
    assert steps(root) == [20, 40]
    lease.release()


def test_after_a_rewind_the_earlier_step_is_the_newer_state(far):
    uploader, root, lease = uploader_on(far, "here", "one")
    checkpoint(root, 10, rewinds=0)
    checkpoint(root, 20, "in the trouble", rewinds=0)
    uploader.save()
    shutil.rmtree(root / "step-00000020")
    checkpoint(root, 15, rewinds=1)
    uploader.save()
    there, far_root, lease = uploader_on(far, "there", "two", lease)
    checkpoint(far_root, 20, "in the trouble", rewinds=0)  # this node had it from before
    there.restore()
    assert steps(far_root) == [15]
    checkpoint(far_root, 20, "after it", rewinds=1)
    there.save()
    third, root, lease = uploader_on(far, "third", "three", lease)
    third.restore()
    assert (root / "step-00000020" / "rank-00000.safetensors").read_text() == "after it"
    lease.release()


def test_a_restore_that_was_killed_is_made_again(far):
    uploader, root, lease = uploader_on(far, "here", "one")
    checkpoint(root, 10)
    uploader.save()
    there, root, lease = uploader_on(far, "there", "two", lease)
    there.restore()
    order = [file.path.rpartition("/")[2] for file in there._work._read().files]
    assert order[-1] == "manifest.json", "what makes it look whole comes last"
    (root / "step-00000010" / "manifest.json").unlink()
    (root / "step-00000010" / "rank-00000.safetensors").unlink()
    again = Uploader(there._work, lease)
    again.restore()
    assert (root / "step-00000010" / "rank-00000.safetensors").exists()
    lease.release()


def test_a_checkpoint_that_was_cut_short_here_is_downloaded_again(far):
    uploader, root, lease = uploader_on(far, "here", "one")
    name = checkpoint(root, 10)
    uploader.save()
    path = root / name / "rank-00000.safetensors"
    path.write_text("wei")
    Uploader(uploader._work, lease).restore()
    assert path.read_text() == "weights of step 10"
    lease.release()


def test_a_damaged_state_is_passed_over_where_this_machine_has_one(far):
    uploader, root, lease = uploader_on(far, "here", "one")
    checkpoint(root, 10)
    uploader.save()
    (file,) = [i.name for i in lease.store.list(NAME) if "safetensors" in i.name]
    _, version = lease.store.read(file)
    lease.store.replace(file, b"something else", version)
    there, root, lease = uploader_on(far, "there", "two", lease)
    with pytest.raises(DataError):
        there.restore()
    checkpoint(root, 5)
    there.restore()
    assert steps(root) in ([5], [5, 10]) and there._newest() == "step-00000005"
    lease.release()


def test_a_run_that_lost_its_key_hears_of_it(far, monkeypatch):
    from yanmo.train.checkpoints import uploader as module

    monkeypatch.setattr(module, "_POLL_SECONDS", 0.05)
    uploader, root, lease = uploader_on(far, "here", "one")
    uploader.check()
    checkpoint(root, 10)
    data, version = lease.store.read(lease.name)
    lease.store.replace(lease.name, json.dumps({**json.loads(data), "owner": "another"}).encode(), version)
    with uploader, pytest.raises(LeaseLost):
        for _ in range(400):
            uploader.check()
            uploader._stop.wait(0.05)
    lease.store.delete(lease.name)
    lease.release()
