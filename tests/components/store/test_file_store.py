"""A folder that cannot serve as a store: said in words, with a code that no retry follows, and soon."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

DOCUMENTS = Path(__file__).parents[2] / "data" / "documents.jsonl"
COMMANDS = {
    "curate": ["curate", "--channel", "main", "--sources", "texts.jsonl"],
    "ls": ["store", "ls"],
    "gc": ["store", "gc", "--delete"],
}
_RIGHTS = "-dac_override,-dac_read_search"
"""What lets root pass over the mode of files: a test that runs as root gives it away."""


def _below_a_file(folder: Path) -> str:
    (folder / "file").touch()
    return "file/store"


def _broken_link(folder: Path) -> str:
    (folder / "link").symlink_to(folder / "nowhere")
    return "link"


def _below_a_broken_link(folder: Path) -> str:
    return f"{_broken_link(folder)}/store"


def _link_to_itself(folder: Path) -> str:
    (folder / "link").symlink_to("link")
    return "link"


def _closed_folder(folder: Path) -> str:
    (folder / "closed" / "pointers").mkdir(parents=True)
    (folder / "closed").chmod(0)
    return "closed"


PLACES: list[Callable[[Path], str]] = [
    _below_a_file,
    _broken_link,
    _below_a_broken_link,
    _link_to_itself,
    _closed_folder,
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with documents to curate."""
    shutil.copy(DOCUMENTS, tmp_path / "texts.jsonl")
    return tmp_path


def _end(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and standard error of a command in `folder`, by a user who passes over no file's mode."""
    command = [sys.executable, "-m", "yanmo.cli", *words]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set", _RIGHTS, "--inh-caps", _RIGHTS, *command]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    return ended.returncode, ended.stderr


needs_modes = pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root passes over modes; no setpriv here"
)


@pytest.mark.process(few=3)
@needs_modes
@pytest.mark.parametrize(
    ("command", "place"),
    [*(("curate", place) for place in PLACES), ("ls", _below_a_file), ("gc", _closed_folder)],
)
def test_a_place_that_cannot_be_a_store_is_told_in_words(
    folder: Path, place: Callable[[Path], str], command: str
) -> None:
    code, output = _end(folder, *COMMANDS[command], "--store", place(folder))
    assert code == 78, output
    assert "--store" in output and "Errno" not in output and "Traceback" not in output, output
    assert "run the same command again" not in output


@needs_modes
def test_a_store_that_may_only_be_read_can_be_read(folder: Path) -> None:
    (folder / "store").mkdir(mode=0o555)
    assert _end(folder, *COMMANDS["ls"], "--store", "store")[0] == 0
    code, output = _end(folder, *COMMANDS["curate"], "--store", "store")
    assert code == 78 and "Permission denied" in output and "--store" in output, output


@needs_modes
def test_gc_removes_nothing_where_it_cannot_read_a_folder(folder: Path) -> None:
    assert _end(folder, *COMMANDS["curate"], "--store", "store")[0] == 0
    before = sorted(folder.glob("store/**/*"))
    (folder / "store" / "pointers" / "main").chmod(0)
    code, output = _end(folder, *COMMANDS["gc"], "--older-than", "0s", "--store", "store")
    (folder / "store" / "pointers" / "main").chmod(0o755)
    assert code == 78, output
    assert sorted(folder.glob("store/**/*")) == before


def test_a_relative_store_in_a_folder_that_is_gone(folder: Path) -> None:
    program = "import os, sys; os.rmdir(os.getcwd()); from yanmo.cli import main; sys.exit(main())"
    (folder / "gone").mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", program, "store", "ls", "--store", "store"],
        cwd=folder / "gone",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 78 and "deleted" in ended.stderr, ended.stderr


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc here")
def test_a_folder_that_can_never_be_made_ends_the_command(folder: Path) -> None:
    code, output = _end(folder, *COMMANDS["curate"], "--store", "/proc/self/store")
    assert code == 78 and "cannot be made" in output, output
