"""A prefix of a bucket holds an export, nothing, or a part that nobody loads, whoever writes or is killed."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from yanmo.common.errors import ExitCode, StorageError
from yanmo.store.s3.files import S3Folder
from yanmo.store.settings import StoreSettings
from yanmo.tools.export.command import main
from yanmo.tools.export.place import place_of, record_of

if TYPE_CHECKING:
    from conftest import Lab


@pytest.fixture
def prefix(s3_server, s3_place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "scratch"))
    return f"s3://{s3_place}/models/{tmp_path.name}"


def export(lab: Lab, *argv: object) -> int:
    return main([*map(str, argv), "--store", lab.uri])


def started(lab: Lab, *argv: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "yanmo.tools.export", "main", *argv, "--store", lab.uri]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def whole(prefix: str) -> dict[str, object]:
    """The record of an export all of which is there."""
    remote = S3Folder(prefix)
    record: dict[str, object] = json.loads(remote.read("yanmo.json"))
    files = record["files"]
    assert isinstance(files, dict) and remote.names() == sorted([*files, "yanmo.json"])
    for name, entry in files.items():
        assert hashlib.sha256(remote.read(name)).hexdigest() == entry["sha256"], name
    return record


def test_it_is_filled_and_replaced_only_when_asked(lab: Lab, prefix: str, tmp_path: Path):
    remote = S3Folder(prefix)
    assert export(lab, "main", prefix) == 0
    whole(prefix)
    assert export(lab, "main", prefix) == ExitCode.USAGE
    assert export(lab, "main", prefix, "--dtype", "bf16", "--overwrite") == 0
    assert whole(prefix)["dtype"] == "bf16"
    (tmp_path / "mine").write_text("mine", encoding="utf-8")
    remote.put("mine.txt", tmp_path / "mine")
    assert export(lab, "main", prefix, "--overwrite") == ExitCode.USAGE
    assert remote.read("mine.txt") == b"mine" and not list((tmp_path / "scratch").glob("export-*"))


@pytest.mark.long
def test_after_kill_nine_nobody_can_load_it_and_it_is_replaced_when_asked(lab: Lab, prefix: str, capsys):
    remote, process = S3Folder(prefix), started(lab, prefix)
    while process.poll() is None and not remote.names():
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = remote.names()
    assert there[-1] == "yanmo.json"
    if "config.json" in there:  # it was faster
        whole(prefix)
    else:
        assert export(lab, "main", prefix) == ExitCode.USAGE
        assert "a part of an export that runs or was killed" in capsys.readouterr().err
    assert export(lab, "main", prefix, "--overwrite") == 0
    whole(prefix)


@pytest.mark.process
def test_of_two_at_once_one_fills_it(lab: Lab, prefix: str):
    both = [started(lab, prefix, "--dtype", dtype) for dtype in ("fp32", "bf16")]
    ends = sorted(process.wait() for process in both)
    assert ends[0] == 0 and ends[1] in (ExitCode.USAGE, ExitCode.RETRY)
    record = whole(prefix)
    assert record["dtype"] == ["fp32", "bf16"][[process.returncode for process in both].index(0)]


def written(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    (folder / "yanmo.json").write_text(record_of(folder, {}), encoding="utf-8")


def test_one_that_finds_another_record_leaves_it_alone(prefix: str, monkeypatch: pytest.MonkeyPatch):
    """Both had found the prefix empty; the other was faster."""
    first, second = (place_of(prefix, StoreSettings(), overwrite=False) for _ in range(2))
    with first.staged() as folder, second.staged() as late:
        written(folder, config_json="of the first")
        first.publish(folder)
        written(late, model_safetensors="of the second", config_json="of the second")
        monkeypatch.setattr(second, "check", lambda: None)
        with pytest.raises(StorageError, match="another export writes there too"):
            second.publish(late)
    remote = S3Folder(prefix)
    assert remote.names() == ["config.json", "yanmo.json"] and remote.read("config.json") == b"of the first"


def test_an_upload_that_fails_leaves_nothing(prefix: str):
    place = place_of(prefix, StoreSettings(), overwrite=False)
    place.check()
    with place.staged() as folder:
        written(folder, README_md="of it", config_json="{}")
        (folder / "model.safetensors").mkdir()  # no file to upload
        with pytest.raises(IsADirectoryError):
            place.publish(folder)
    assert S3Folder(prefix).names() == []
