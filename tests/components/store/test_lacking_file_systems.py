"""A file system that lacks what a store or scratch needs: said once, with what to do; no retry follows.

FAT, exFAT and many FUSE mounts have no hard links; NFS without its lock service has no locks.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from denied import IS_HERE

from yanmo.common.errors import ExitCode, exit_code

ROOT = Path(__file__).parents[3]
DOCUMENTS = ROOT / "tests" / "data" / "documents.jsonl"
LACKING = [
    *(("link,linkat", name, "hard links") for name in ("EPERM", "EOPNOTSUPP", "ENOSYS", "EMLINK")),
    *(("flock", name, "locks") for name in ("ENOSYS", "EOPNOTSUPP", "ENOLCK")),
]
needs_seccomp = pytest.mark.skipif(not IS_HERE, reason="needs Linux")
CURATE = ["-m", "yanmo.cli", "curate", "--store", "store", "--channel", "main", "--sources", "texts.jsonl"]
SCRATCH = """
from pathlib import Path
from yanmo.common.errors import report
from yanmo.store.scratch import Scratch
import hashlib, logging, sys
try:
    digest = hashlib.sha256(b"x").hexdigest()
    Scratch(Path("scratch"), 1 << 20).get("a/b", digest, 1, lambda path: path.write_bytes(b"x"))
except Exception as error:
    sys.exit(report(error, logging.getLogger()))
"""


def _end(folder: Path, calls: str, error: str, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "denied", calls, error, "--", sys.executable, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return ended.returncode, ended.stderr


@pytest.mark.process(few=2)
@needs_seccomp
@pytest.mark.parametrize(("calls", "error", "lacks"), LACKING)
@pytest.mark.parametrize("what", ["store", "scratch"])
def test_what_a_file_system_lacks_is_told_and_not_tried_again(
    tmp_path: Path, what: str, calls: str, error: str, lacks: str
) -> None:
    shutil.copy(DOCUMENTS, tmp_path / "texts.jsonl")
    words = CURATE if what == "store" else ["-c", SCRATCH]
    code, said = _end(tmp_path, calls, error, *words)
    assert code == 78, said
    assert lacks in said and "local disk" in said, said
    assert os.strerror(getattr(errno, error)) in said and f"--{what}" in said
    assert "run the same command again" not in said and "Traceback" not in said
    assert not list(tmp_path.rglob(".tmp-*"))


PASSES = ["EIO", "EAGAIN", "EINTR", "ESTALE", "EBUSY", "ETIMEDOUT", "ECONNRESET", "ECONNREFUSED", "EPIPE"]
NEVER = [
    "ENOSYS",
    "EOPNOTSUPP",
    "ENOTSUP",
    "ENOLCK",
    "EINVAL",
    "EXDEV",
    "ENODEV",
    "EROFS",
    "ENOSPC",
    "EMFILE",
]


@pytest.mark.parametrize("name", [*PASSES, *NEVER])
def test_only_what_may_pass_is_tried_again(name: str) -> None:
    error = OSError(getattr(errno, name), os.strerror(getattr(errno, name)), "/some/file")
    assert exit_code(error) == (ExitCode.RETRY if name in PASSES else ExitCode.ENVIRONMENT)
