"""What made an output is named, and changes neither key nor digest."""

import importlib.metadata
import shutil
import subprocess
from pathlib import Path

import yanmo
from yanmo.common import made_by as module
from yanmo.common.made_by import made_by


def test_processor_torch_and_code_are_named():
    found = made_by()
    assert set(found) == {"processor", "torch", "yanmo"} and all(found.values())
    import torch

    assert torch.__version__.split("+")[0] == found["torch"].split("+")[0]


def test_a_checkout_names_its_commit_and_what_differs_from_it(tmp_path: Path, monkeypatch):
    code = module.code.__wrapped__  # a process asks once
    package = tmp_path / "components" / "yanmo"
    package.mkdir(parents=True)
    shutil.copy(yanmo.__file__, package)
    monkeypatch.setattr(yanmo, "__file__", str(package / "__init__.py"))
    monkeypatch.delenv("YANMO_COMMIT", raising=False)
    version = importlib.metadata.version("yanmo")
    assert code() == version  # no checkout: the installed package's
    monkeypatch.setenv("YANMO_COMMIT", "")
    assert code() == version, "an image that was built without saying it"
    monkeypatch.setenv("YANMO_COMMIT", "1e6a14a6a4ce")
    assert code() == "1e6a14a6a4ce", "an image says what it was built from"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a"]):
        subprocess.run([*git, *arguments], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert code() == head[:12]
    (package / "__init__.py").write_text("a = 1\n", encoding="utf-8")
    assert code() == head[:12] + "-dirty"
