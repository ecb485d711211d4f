"""`make install` in a small project with an index of its own: what a person sees, and what is installed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import installer
import pytest
from installer import Refused, check_machine, choose_build, driver_version, settings_of_pip
from processes import is_alive
from small_index import Index, small_project

UV = Path(sys.executable).with_name("uv")
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not UV.exists(), reason="uv is not installed beside python"),
]


@pytest.fixture
def index() -> Iterator[Index]:
    index = Index()
    yield index
    index.close()


class Project:
    """The small project in a folder whose name has spaces."""

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder, self.venv = folder / "my yanmo", folder / "my yanmo" / ".venv"
        self.folder.mkdir()
        small_project(self.folder, index, UV)
        keep = {n: v for n, v in os.environ.items() if not n.startswith(("PIP_", "UV_", "MAKE", "MFLAGS"))}
        self.environment = keep | {
            "PIP_INDEX_URL": f"{index.address}/pypi",
            "TORCH_INDEX": f"{index.address}/cpu",
            "UV_CACHE_DIR": str(folder / "cache"),
            "PIP_CACHE_DIR": str(folder / "pip"),
            "UV_HTTP_RETRIES": "0",
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        }

    def make(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "--no-print-directory", "install", f"PYTHON={sys.executable}", *words],
            cwd=self.folder,
            env=self.environment | variables,
            capture_output=True,
            text=True,
        )

    def installed(self) -> set[str]:
        """What there is besides pip, as `pip freeze` names it."""
        python = self.venv / "bin" / "python"
        done = subprocess.run(
            [python, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True
        )
        return {line for line in done.stdout.split() if not line.startswith(("pip==", "uv=="))}


@pytest.fixture
def project(tmp_path: Path, index: Index) -> Project:
    return Project(tmp_path, index)


BASE = {"first==1.0", "second==2.0", "setuptools==81.0.0", "yanmo==0.1.0"} - {"setuptools==81.0.0"}
CPU, CUDA = {*BASE, "torch==2.13.0+cpu"}, {*BASE, "torch==2.13.0", "nvidia-x==1"}


def without_setuptools(found: set[str]) -> set[str]:
    """Of Python 3.11 and before a new environment has setuptools too."""
    return {line.replace("_", "-") for line in found if not line.startswith("setuptools==")}


def test_the_build_for_cpus_and_then_nothing_to_do_and_then_the_one_with_cuda(
    project: Project, index: Index
) -> None:
    done = project.make()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "progress, not shell"
    lines = done.stderr.splitlines()
    assert lines[0].endswith(".venv: torch for the CPU, as no NVIDIA driver is here.")
    assert "0.5 GB to download and 2.0 GB of disk" in lines[1]
    assert re.fullmatch(r"Installed into \S.*\.venv in \d+ s\.", lines[-1])
    assert without_setuptools(project.installed()) == CPU

    asked = len(index.asked)
    again = project.make()
    assert (again.returncode, again.stderr) == (0, "") and "Nothing to be done" in again.stdout
    (project.folder / "pyproject.toml").touch()  # as git does, without a change
    for words in ([], ["TORCH=cpu"]):
        again = project.make(*words)
        assert (again.returncode, again.stderr) == (0, "")
    assert len(index.asked) == asked, "nothing needs the network"

    (project.folder / "constraints" / "build.txt").open("a").write("# changed\n")
    done = project.make(TORCH_INDEX=f"{index.address}/nowhere")
    assert done.returncode == 0, done.stderr
    assert without_setuptools(project.installed()) == CPU, "what is there needs no index"

    done = project.make("TORCH=cuda")
    assert done.returncode == 0, done.stderr
    assert "torch with CUDA, as asked for." in done.stderr
    assert without_setuptools(project.installed()) == CUDA
    assert project.make("TORCH=cpu").returncode == 0
    assert without_setuptools(project.installed()) == CPU, "what only CUDA needs is gone again"


def test_without_torchs_index_it_is_pypis_build_unless_the_other_was_asked_for(
    project: Project, index: Index
) -> None:
    nowhere = f"{index.address}/nowhere"
    asked = project.make("TORCH=cpu", TORCH_INDEX=nowhere)
    assert asked.returncode == 2 and "Error 75" in asked.stderr
    assert f"TORCH=cpu: {nowhere} cannot be reached (Not Found)" in asked.stderr
    done = project.make(TORCH_INDEX=nowhere)
    assert done.returncode == 0, done.stderr
    assert "torch with CUDA, which runs on a CPU too: " + nowhere in done.stderr
    assert without_setuptools(project.installed()) == CUDA


def test_a_killed_install_goes_on_and_nobody_is_left_at_work(project: Project, index: Index) -> None:
    held = "second-2.0-py3-none-any.whl"
    index.held[held] = threading.Event()
    command = ["make", "install", f"PYTHON={sys.executable}"]
    making = subprocess.Popen(command, cwd=project.folder, env=project.environment, stderr=subprocess.PIPE)
    while not any(path.endswith(held) for path in index.asked):
        assert making.poll() is None, making.stderr.read()
        time.sleep(0.05)
    installing, uv = making.pid, _child(making.pid)
    while Path(f"/proc/{uv}/comm").read_text() != "uv\n":  # below make, and below a shell where it starts one
        installing, uv = uv, _child(uv)
    os.kill(installing, signal.SIGKILL)
    assert making.wait() == 2
    threading.Timer(2, index.held.pop(held).set).start()  # uv ends by itself, and is waited for
    assert is_alive(uv)
    torn = next(project.venv.glob("lib/python*/site-packages")) / "first.py"
    torn.write_text("half of")

    done = project.make()
    assert done.returncode == 0, done.stderr
    assert "waiting for it" in done.stderr and not is_alive(uv)
    assert "was stopped: beginning again" in done.stderr
    assert without_setuptools(project.installed()) == CPU
    assert torn.read_text() == "x = 1"


def _child(pid: int) -> int:
    return int(subprocess.check_output(["pgrep", "-P", str(pid)]))


def test_a_file_with_another_hash_is_refused_and_a_failed_update_is_mended(
    project: Project, index: Index
) -> None:
    assert project.make().returncode == 0
    lock = project.folder / "constraints" / "base.txt"
    right = lock.read_text()
    lock.write_text(right.replace("first==1.0", "first==1.1"))
    index.files["pypi"]["first-1.1-py3-none-any.whl"] = index.files["pypi"]["second-2.0-py3-none-any.whl"]
    done = project.make()
    assert done.returncode == 2 and "Hash mismatch" in done.stderr
    assert "Mend that" in done.stderr
    assert "first==1.1" not in project.installed()
    lock.write_text(right)
    assert project.make().returncode == 0
    assert without_setuptools(project.installed()) == CPU


def test_an_environment_of_ones_own_keeps_what_it_has(project: Project, index: Index) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(project.venv)], check=True)
    site = next(project.venv.glob("lib/python*/site-packages"))
    (site / "mine.py").write_text("x = 3")
    done = project.make()
    assert done.returncode == 0, done.stderr
    assert (site / "mine.py").exists() and without_setuptools(project.installed()) == CPU

    (project.venv / "bin" / "python").unlink()  # the Python that made it was removed
    (project.venv / "bin" / "python").symlink_to("/nowhere/python3")
    (project.folder / "constraints" / "uv.txt").open("a").write("# changed\n")
    done = project.make()
    assert done.returncode == 0, done.stderr
    assert (site / "mine.py").exists() and without_setuptools(project.installed()) == CPU


def test_a_folder_that_is_something_else_stays_as_it_is(project: Project) -> None:
    project.venv.mkdir()
    (project.venv / "notes.txt").touch()
    done = project.make()
    assert done.returncode == 2 and "Error 78" in done.stderr and "is no virtual environment" in done.stderr
    assert [path.name for path in project.venv.iterdir()] == ["notes.txt"]


def test_pips_settings_are_uvs_variables_and_the_environment_counts_most() -> None:
    listing = r"""
:env:.index-url='https://env.example/simple'
global.cert='/etc/ssl/ca.crt'
global.extra-index-url='https://one.example\nhttps://two.example'
global.find-links='/my/wheels'
global.index-url='https://global.example/simple'
global.proxy='http://proxy.example:3128'
install.trusted-host='one.example'
""".strip()
    assert settings_of_pip(listing) == {
        "UV_DEFAULT_INDEX": "https://env.example/simple",
        "UV_INDEX": "https://one.example https://two.example",
        "UV_FIND_LINKS": "/my/wheels",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "UV_INSECURE_HOST": "one.example",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert settings_of_pip("") == {}


def test_a_python_that_is_not_there_is_one_sentence(project: Project) -> None:
    done = project.make("PYTHON=python3.99")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines()[0].startswith("python3.99 is not on this machine: install Python 3.11")


def test_an_old_python_is_told_which_one_would_do(project: Project) -> None:
    """The file that every Python must be able to read, as an old one sees itself."""
    code = "import runpy, sys; sys.version_info = (3, 9, 2); runpy.run_path('install', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=project.folder, capture_output=True, text=True)
    assert done.returncode == 78
    assert "3.11, 3.12 or 3.13" in done.stderr and "is 3.9. Name another: make PYTHON=" in done.stderr


MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2026\n"


def test_the_driver_is_what_the_kernel_shows_or_nvidia_smi_says(tmp_path, monkeypatch) -> None:
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert driver_version(tmp_path) == ""
    for says, version in (("echo 580.65.06", "580.65.06"), ("echo failed; exit 9", "")):
        program.write_text(f"#!/bin/sh\n{says}\n")
        program.chmod(0o755)
        assert driver_version(tmp_path) == version
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(MODULE)
    assert driver_version(tmp_path) == "580.95.05"


@pytest.mark.parametrize(
    ("driver", "wished", "name"),
    [
        ("", "", "cpu"),
        ("575.51", "", "cpu"),
        ("580.1", "", "cuda"),
        ("1000.1", "", "cuda"),
        ("580.1", "cpu", "cpu"),
        ("", "cuda", "cuda"),
    ],
)
def test_a_build_follows_the_driver_and_what_a_person_wants(
    tmp_path, monkeypatch, driver: str, wished: str, name: str
) -> None:
    monkeypatch.setattr(installer, "driver_version", lambda: driver)
    monkeypatch.setattr(sys, "platform", "linux")
    build = choose_build(wished, str(tmp_path))  # a folder of wheels is an index too
    assert (build.name, build.index) == (name, str(tmp_path) if name == "cpu" else "")
    with pytest.raises(Refused, match=r"TORCH=rocm: expected cpu, cuda"):
        choose_build("rocm", str(tmp_path))


@pytest.mark.parametrize(
    ("system", "machine", "libc", "said"),
    [
        ("Linux", "x86_64", ("glibc", "2.28"), ""),
        ("Darwin", "arm64", ("", ""), ""),
        ("Linux", "x86_64", ("glibc", "2.17"), "glibc 2.28 or later; this is glibc 2.17"),
        ("Linux", "x86_64", ("", ""), "this is another libc"),
        ("Linux", "riscv64", ("glibc", "2.41"), "this is Linux riscv64"),
        ("Windows", "AMD64", ("", ""), "on Windows in WSL"),
    ],
)
def test_a_machine_without_wheels_is_told_before_anything_is_downloaded(
    monkeypatch, system: str, machine: str, libc: tuple[str, str], said: str
) -> None:
    for name, value in [("system", system), ("machine", machine), ("libc_ver", libc)]:
        monkeypatch.setattr(installer.platform, name, lambda value=value: value)
    if not said:
        return check_machine()
    with pytest.raises(Refused) as refused:
        check_machine()
    assert said in str(refused.value) and refused.value.code == 78
