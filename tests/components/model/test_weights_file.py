"""A full disk is said as the system says it."""

from __future__ import annotations

import errno
import resource

import pytest
import torch
from safetensors.torch import load_file

from yanmo.common.errors import ExitCode, exit_code
from yanmo.model.weights_file import write_tensors


def test_tensors_come_back(tmp_path):
    write_tensors({"a": torch.arange(3.0)}, tmp_path / "w", {"format": "pt"})
    assert load_file(tmp_path / "w")["a"].tolist() == [0, 1, 2]


@pytest.fixture
def small_files():
    """No file of this process may grow beyond 4 kB meanwhile: a quota that needs no disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_takes_no_more_is_this_machine_s_and_no_bug(tmp_path, small_files):
    with pytest.raises(OSError, match="File too large") as caught:
        write_tensors({"a": torch.zeros(4096)}, tmp_path / "w")
    assert caught.value.errno == errno.EFBIG and caught.value.filename == str(tmp_path / "w")
    assert exit_code(caught.value) == ExitCode.ENVIRONMENT


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        write_tensors({"a": torch.zeros(4)}, tmp_path / "none" / "w")
