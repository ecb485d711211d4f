"""Which build of torch a machine gets, and what is refused before anything is downloaded."""

from __future__ import annotations

import ast
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import plan
import pytest
from plan import Refused, check_disk, check_machine, choose_build, driver_version
from shown import _without_list

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9/whl/cpu"
Usage = namedtuple("Usage", "total used free")
MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2026\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.172.08  Release Build\n"


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("sys/module/nvidia/version", "590.44.01\n", "590.44.01"),
        ("proc/driver/nvidia/version", MODULE, "580.95.05"),
        ("proc/driver/nvidia/version", OPEN, "570.172.08"),
        ("somewhere/else", "580.1", ""),
    ],
)
def test_the_driver_is_found_where_the_kernel_shows_it(tmp_path, monkeypatch, name, text, version) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text)
    assert driver_version(tmp_path) == version


@pytest.mark.parametrize(("says", "version"), [("echo 580.65.06", "580.65.06"), ("echo failed; exit 9", "")])
def test_else_nvidia_smi_is_asked_as_under_wsl(tmp_path, monkeypatch, says, version) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert driver_version(tmp_path) == version


def test_a_build_follows_the_driver_and_what_a_person_wants(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    local = [tmp_path]
    for driver, wished, name in [
        ("", "", "cpu"),
        ("575.51", "", "cpu"),
        ("580.1", "", "cuda"),
        ("1000.1", "", "cuda"),
        ("580.1", "cpu", "cpu"),
        ("", "cuda", "cuda"),
    ]:
        monkeypatch.setattr(plan, "driver_version", lambda version=driver: version)
        build = choose_build(wished, NOWHERE, local)
        assert (build.name, build.index) == (name, str(tmp_path) if name == "cpu" else "")
    monkeypatch.setattr(plan, "driver_version", lambda: "575.51")
    assert "driver 580 or later and 575.51 is here" in choose_build("", NOWHERE, local).why
    with pytest.raises(Refused, match=r"TORCH=rocm: expected cpu, cuda"):
        choose_build("rocm", NOWHERE)


def test_a_mac_has_one_build_and_asks_no_index(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert (choose_build("", NOWHERE).name, choose_build("cpu", NOWHERE).index) == ("cpu", "")
    with pytest.raises(Refused, match="no CUDA on a Mac"):
        choose_build("cuda", NOWHERE)


@pytest.mark.parametrize(
    ("system", "machine", "libc", "mac", "said"),
    [
        ("Linux", "x86_64", ("glibc", "2.28"), "", ""),
        ("Linux", "aarch64", ("glibc", "2.41"), "", ""),
        ("Darwin", "arm64", ("", ""), "14.0", ""),
        ("Darwin", "arm64", ("", ""), "26.1", ""),
        ("Linux", "x86_64", ("glibc", "2.17"), "", "glibc 2.28 or later; this system has glibc 2.17"),
        ("Linux", "x86_64", ("", ""), "", "this system has another libc"),
        ("Linux", "riscv64", ("glibc", "2.41"), "", "this is Linux riscv64"),
        ("Darwin", "x86_64", ("", ""), "15.0", "this is Darwin x86_64"),
        ("Darwin", "arm64", ("", ""), "13.6", "macOS 14 or later; this is 13.6"),
        ("Windows", "AMD64", ("", ""), "", "On Windows use WSL"),
    ],
)
def test_a_machine_without_wheels_is_told_before_anything_is_downloaded(
    monkeypatch, system, machine, libc, mac, said
) -> None:
    for name, value in [("system", system), ("machine", machine), ("libc_ver", libc), ("mac_ver", (mac,))]:
        monkeypatch.setattr(plan.platform, name, lambda value=value: value)
    if not said:
        return check_machine()
    with pytest.raises(Refused) as refused:
        check_machine()
    assert said in str(refused.value) and refused.value.code == 78


@pytest.mark.parametrize("missing", ["venv", "ensurepip"])
def test_debians_package_is_named_where_python_cannot_make_an_environment(monkeypatch, missing) -> None:
    find = plan.importlib.util.find_spec
    monkeypatch.setattr(plan.importlib.util, "find_spec", lambda n: None if n == missing else find(n))
    with pytest.raises(Refused, match="apt-get install python3-venv"):
        check_machine()


def test_what_cannot_fit_is_not_begun_but_what_is_in_the_cache_counts(tmp_path, monkeypatch) -> None:
    environment = {"UV_CACHE_DIR": str(tmp_path / "cache")}
    need = plan.SIZES["cpu"].disk
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, need - 5000))
    with pytest.raises(Refused, match=r"2\.0 GB are free, and this install needs 2\.0 GB") as refused:
        check_disk("cpu", tmp_path / "new" / ".venv", environment)
    assert refused.value.code == 75 and not list(tmp_path.iterdir())
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "torch").write_bytes(bytes(6000))
    check_disk("cpu", tmp_path / "new" / ".venv", environment)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, need))
    check_disk("cpu", tmp_path, {"XDG_CACHE_HOME": str(tmp_path / "none")})


def test_any_python_can_read_the_file_that_says_which_one_is_needed() -> None:
    text = (ROOT / "install/__main__.py").read_text(encoding="ascii")
    ast.parse(text, feature_version=(3, 4))
    assert 'f"' not in text and "annotations" not in text


def test_of_an_installers_words_only_the_list_of_packages_is_left_out() -> None:
    texts = [
        "Resolved 2\n",
        "bar 1/2\r",
        "bar 2/2\rInstalled 2 pack",
        "ages\n",
        "compiling 1\r",
        "compiling 2\r\n",
    ]
    texts += [" + a==1\n \x1b[32m+\x1b[0m", " b==2\n -", " c==1\nwarning", ": x\n"]
    shown = list(_without_list(iter(texts)))
    assert "".join(shown) == (
        "Resolved 2\nbar 1/2\rbar 2/2\rInstalled 2 packages\ncompiling 1\rcompiling 2\r\nwarning: x\n"
    )
    assert "compiling 1\r" in shown, "a bar is shown as it grows"
