"""The file:// backend: conditional writes, hostile names, full disks."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from yanmo.common.errors import DataError, ExitCode, StorageError, UsageError, exit_code
from yanmo.store.file_store import FileStore
from yanmo.store.opening import open_store


def test_list_shows_objects_and_neither_temporaries_nor_locks(store: FileStore) -> None:
    version = store.create("b", b"")
    store.replace("b", b"2", version)
    store.create("a/c", b"")
    (store.root / "a/.tmp-123").write_bytes(b"left by a kill")
    assert [info.name for info in store.list("")] == ["a/c", "b"]
    assert [info.name for info in store.list("a")] == ["a/c"]


def test_a_folder_that_cannot_be_moved_over_leaves_no_temporary(store: FileStore) -> None:
    store.create("a/b", b"")
    with pytest.raises(OSError, match="directory"):
        store.replace("a", b"x", "no object")
    assert not list(store.root.rglob(".tmp-*"))


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("s3://", "names no bucket; expected s3://bucket/prefix"),
        ("s3://b/p", "a bucket's name has 3 to 63 of .*: 'b'; expected s3://bucket/prefix"),
        ("s3://My_Bucket/p", "a bucket's name has 3 to 63 of a-z, 0-9"),
        ("gs://bucket", "no backend for gs://"),
        ("file://host/path", "expected file:///absolute/path"),
        ("", "--store is empty"),
        ("file://", "--store is empty"),
        (__file__, "expected a folder, found a file"),
    ],
)
def test_unusable_stores_are_a_usage_error(uri: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        open_store(uri)


def test_a_store_is_named_by_folder_or_by_uri_and_escapes_are_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a b 库"
    by_path, by_uri = open_store(str(folder)), open_store(folder.as_uri())
    assert isinstance(by_uri, FileStore) and by_uri.root == folder and by_path.uri == by_uri.uri
    monkeypatch.chdir(tmp_path)
    relative = open_store("runs/demo")
    assert relative.uri == (tmp_path / "runs/demo").as_uri()


FILL = """
import pathlib
import sys
from yanmo.common.errors import exit_code, advice
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.file_store import FileStore

def build(attempt):
    attempt.write("big.bin", b"x" * 400_000)
    return Result(counts={})

store, recipe = FileStore(pathlib.Path(sys.argv[1])), Recipe(stage="toy", revision=1, semantic={}, inputs={})
try:
    commit_once(store, recipe, build)
except Exception as error:
    print(advice(error), file=sys.stderr)
    sys.exit(exit_code(error))
"""


def commit_400_kilobytes(
    store: FileStore, limit_bytes: int | None = None
) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        if limit_bytes:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    command = [sys.executable, "-c", FILL, str(store.root)]
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, env=dict(os.environ))


def test_a_file_size_limit_ends_in_try_again_with_nothing_half_written(store: FileStore) -> None:
    failed = commit_400_kilobytes(store, limit_bytes=100_000)
    assert failed.returncode == ExitCode.ENVIRONMENT, failed.stderr
    assert "file too large" in failed.stderr and "nothing half-written" in failed.stderr
    assert "Raise the limit (ulimit -f) and run the same command again" in failed.stderr
    assert not [info for info in store.list("") if info.name.startswith("cas/")]
    assert commit_400_kilobytes(store).returncode == 0


def test_a_full_disk_ends_at_once_with_nothing_half_written(tiny_disk: Path) -> None:
    store = FileStore(tiny_disk / "store")
    failed = commit_400_kilobytes(store)
    assert failed.returncode == ExitCode.ENVIRONMENT, failed.stderr
    assert "no space left on device" in failed.stderr
    assert not [info for info in store.list("") if info.name.startswith("cas/")]
    subprocess.run(["mount", "-o", "remount,size=2m", str(tiny_disk)], check=True)
    assert commit_400_kilobytes(store).returncode == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 64),
        (DataError("x"), 65),
        (FileNotFoundError(2, "x"), 65),
        (PermissionError(13, "x"), 65),
        (OSError(errno.ENAMETOOLONG, "x"), 65),
        (ValueError("x"), 70),
        (KeyError("x"), 70),
        (StorageError("x"), 75),
        (OSError(errno.EIO, "x"), 75),
        (ConnectionResetError(104, "x"), 75),
        (TimeoutError(), 75),
        (OSError(errno.EROFS, "x"), 78),
        (OSError(errno.EMFILE, "x"), 78),
        (OSError(errno.ENOSPC, "x"), 78),
        (OSError(errno.EDQUOT, "x"), 78),
        (OSError(errno.ENOMEM, "x"), 78),
        (MemoryError(), 78),
    ],
)
def test_each_kind_of_error_has_its_documented_exit_code(error: BaseException, code: int) -> None:
    assert exit_code(error) == code
