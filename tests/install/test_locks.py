"""The lock files hold all that is installed, agree with pyproject.toml and with each other."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from installer import ROOT
from lock import FILES, FOLDER, read_pins
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = {"base": "dev", "data": "data", "train": "train", "cluster": "cluster", "ray": "ray"}
MACHINES = [
    {"sys_platform": system, "platform_machine": machine, "python_full_version": f"3.{minor}.0"}
    | {"python_version": f"3.{minor}", "implementation_name": "cpython"}
    for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
    for minor in (11, 12, 13)
]


def wanted(extra: str) -> list[Requirement]:
    """What pyproject.toml asks for with an extra; extras of its own are followed."""
    found = [Requirement(each) for each in PROJECT["dependencies"]]
    for each in map(Requirement, PROJECT["optional-dependencies"][extra]):
        found += [r for own in each.extras for r in wanted(own)] if each.name == "yanmo" else [each]
    return found


def version_in(pin: str) -> str:
    return pin.partition("==")[2].split()[0]


def applies(marker: object, machine: dict[str, str]) -> bool:
    return not str(marker or "") or Marker(str(marker)).evaluate(machine)


@pytest.mark.parametrize(("lock", "extra"), EXTRAS.items())
def test_a_lock_has_what_pyproject_asks_for_on_every_machine(lock: str, extra: str) -> None:
    pins = read_pins(lock)
    for machine in MACHINES:
        for requirement in wanted(extra):
            name = canonicalize_name(requirement.name)
            if name != "torch" and applies(requirement.marker, machine):
                assert requirement.specifier.contains(version_in(pins[name])), f"{name}: `make lock` not run?"
                marker = pins[name].partition("\\")[0].partition(";")[2].strip()
                assert applies(marker, machine), f"{name} is left out on {machine}"


def test_every_pin_has_hashes_and_stands_once_and_locks_agree() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(FILES)
    whole = {**read_pins("base"), **read_pins("cuda")}
    for name in FILES:
        text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
        pins = re.findall(r"^[\w.-]+==[^\n]*\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.M)
        assert pins and len(pins) == len(re.findall(r"^[^#\s]", text, re.M)), name
        for package, pin in read_pins(name).items():
            if package in whole and name != "cpu":
                assert version_in(whole[package]) == version_in(pin), f"{package} in {name}"


def test_the_two_builds_of_torch_leave_nothing_to_chance() -> None:
    linux, mac = re.findall(r"^torch==(.*) \\$", (FOLDER / "cpu.txt").read_text(encoding="utf-8"), re.M)
    version = version_in(read_pins("cuda")["torch"])
    assert (
        linux == f"{version}+cpu ; sys_platform == 'linux'" and mac == f"{version} ; sys_platform == 'darwin'"
    )
    assert all("sys_platform == 'linux'" in pin for pin in read_pins("cuda").values())
    of_cuda = [name for name in read_pins("base") if name.startswith(("nvidia", "cuda", "triton", "torch"))]
    assert of_cuda == ["nvidia-ml-py"], "which needs a driver alone"


def test_supported_machines_are_said_alike_everywhere() -> None:
    supported = [Marker(each) for each in PYPROJECT["tool"]["uv"]["environments"]]
    assert all(any(each.evaluate(machine) for each in supported) for machine in MACHINES)
    versions = SpecifierSet(PROJECT["requires-python"])
    assert [minor for minor in range(30) if versions.contains(f"3.{minor}.0")] == [11, 12, 13]
    text = (ROOT / "install/__main__.py").read_text(encoding="utf-8")
    assert re.findall(r'"3\.(\d+)"', text) == ["11", "12", "13"]


def test_of_all_that_is_installed_every_version_is_locked() -> None:
    """Follows what is installed here from yanmo[dev] on; what a person has added besides does not count."""
    pins = {name: version_in(pin) for lock in ("base", "cuda") for name, pin in read_pins(lock).items()}
    pins["yanmo"] = PROJECT["version"]
    open_ends, seen, wrong = [("yanmo", "dev")], set(), []
    while open_ends:
        name, extra = open_ends.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        here = metadata.version(name)
        if pins.get(name) != Version(here).public:
            wrong.append(f"{name} {here}")
        for each in map(Requirement, metadata.requires(name) or []):
            if not each.marker or each.marker.evaluate({"extra": extra}):
                open_ends += [(canonicalize_name(each.name), e) for e in ("", *each.extras)]
    assert not wrong, "in no lock file"
    assert len(seen) > 100


def test_any_python_can_read_the_file_that_says_which_one_is_needed() -> None:
    import ast

    text = (Path(ROOT) / "install/__main__.py").read_text(encoding="ascii")
    ast.parse(text, feature_version=(3, 4))
    assert 'f"' not in text and "annotations" not in text
