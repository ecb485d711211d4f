"""The lock files hold all that is installed, agree with pyproject.toml and with each other."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from lock import MACHINES, PYTHONS, cpu_hashes, shortest
from locks import FILES, FOLDER, Pin, read_lock, read_pins
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = {"base": "dev", "data": "data", "train": "train", "cluster": "cluster"}


def wanted(extra: str) -> list[Requirement]:
    """What pyproject.toml asks for with an extra; extras of its own are followed."""
    found = [Requirement(each) for each in PROJECT["dependencies"]]
    for each in map(Requirement, PROJECT["optional-dependencies"][extra]):
        found += [r for own in each.extras for r in wanted(own)] if each.name == "yanmo" else [each]
    return found


def locked(name: str, torch: str = "cuda") -> dict[str, Pin]:
    pins = [*read_lock(name), *(read_lock(torch) if name in ("base", "train") else [])]
    return {pin.name: pin for pin in pins}


def applies(marker: object, machine: dict[str, str]) -> bool:
    return not str(marker or "") or Marker(str(marker)).evaluate(machine)


@pytest.mark.parametrize(("lock", "extra"), EXTRAS.items())
def test_a_lock_has_what_pyproject_asks_for_on_every_machine(lock: str, extra: str) -> None:
    for machine in MACHINES:
        torch = "cpu" if machine["sys_platform"] == "darwin" else "cuda"
        pins = locked(lock, torch)
        for requirement in wanted(extra):
            if applies(requirement.marker, machine):
                pin = pins[canonicalize_name(requirement.name)]
                assert requirement.specifier.contains(pin.version), f"{requirement}: `make lock` not run?"
                assert applies(pin.marker, machine), f"{requirement} is left out on {machine}"


@pytest.mark.parametrize("name", FILES)
def test_every_pin_has_a_hash_and_stands_once(name: str) -> None:
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    pins = read_pins(text)
    assert pins and all(pin.hashes for pin in pins)
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for pin in pins for digest in pin.hashes)
    assert len({(pin.name, pin.marker) for pin in pins}) == len(pins)
    written = "".join(line + "\n" for pin in pins for line in pin.lines())
    assert text.partition("\n")[2] == written


def test_no_other_file_pins_anything() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(FILES)


def test_locks_agree_with_each_other() -> None:
    whole = locked("base")
    for name in ("data", "train", "cluster"):
        assert not [pin for pin in read_lock(name) if whole[pin.name].hashes != pin.hashes]
    build = {pin.name: pin for pin in read_lock("build")}
    assert not [name for name in build.keys() & whole.keys() if build[name].hashes != whole[name].hashes]
    assert [Version(pin.version).public for pin in read_lock("cpu")] == [whole["torch"].version] * 2
    for requirement in map(Requirement, PYPROJECT["build-system"]["requires"]):
        assert requirement.specifier.contains(build[requirement.name].version)


def test_the_two_builds_of_torch_leave_nothing_to_chance() -> None:
    linux, mac = read_lock("cpu")
    assert linux.version.endswith("+cpu") and linux.marker == "sys_platform == 'linux'"
    assert len(linux.hashes) == len([m for m in MACHINES if m["sys_platform"] == "linux"])
    assert mac.marker == "sys_platform == 'darwin'"
    assert all("sys_platform == 'linux'" in pin.marker for pin in read_lock("cuda"))
    of_cuda = [pin.name for pin in read_lock("base") if pin.name.startswith(("nvidia", "cuda", "triton"))]
    assert of_cuda == ["nvidia-ml-py"], "which needs a driver alone"


def test_supported_machines_are_said_alike_everywhere() -> None:
    supported = [Marker(each) for each in PYPROJECT["tool"]["uv"]["environments"]]
    assert all(any(each.evaluate(machine) for each in supported) for machine in MACHINES)
    newer = [{**m, "python_version": "3.14", "python_full_version": "3.14.0"} for m in MACHINES]
    assert not any(each.evaluate(machine) for each in supported for machine in newer)
    versions = SpecifierSet(PROJECT["requires-python"])
    assert [minor for minor in range(30) if versions.contains(f"3.{minor}.0")] == list(PYTHONS)
    text = (ROOT / "install/__main__.py").read_text(encoding="utf-8")
    assert re.findall(r'"3\.(\d+)"', text) == [str(minor) for minor in PYTHONS]


def test_of_all_that_is_installed_every_version_is_locked() -> None:
    """Follows what is installed here from yanmo[dev] on; what a person has added besides does not count."""
    pins = {**locked("base"), "yanmo": Pin("yanmo", PROJECT["version"], "", ())}
    open_ends, seen, wrong = [("yanmo", "dev")], set(), []
    while open_ends:
        name, extra = open_ends.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        here = metadata.version(name)
        if name not in pins or pins[name].version != Version(here).public:
            wrong.append(f"{name} {here}")
        for each in map(Requirement, metadata.requires(name) or []):
            if not each.marker or each.marker.evaluate({"extra": extra}):
                open_ends += [(canonicalize_name(each.name), e) for e in ("", *each.extras)]
    assert not wrong, "in no lock file"
    assert len(seen) > 100


def test_conditions_that_hold_everywhere_are_left_out() -> None:
    linux = "(platform_machine == 'aarch64' and sys_platform == 'linux') or (sys_platform == 'linux')"
    assert shortest("") == shortest("python_version < '4' and implementation_name != 'PyPy'") == ""
    assert shortest(linux) == "sys_platform == 'linux'"
    odd = "python_version < '3.12' and sys_platform == 'darwin'"
    assert shortest(odd) == odd


def test_hashes_of_torch_are_read_from_its_index() -> None:
    def link(name: str, digit: str) -> str:
        return f'<a href="/whl/cpu/{name}#sha256={digit * 64}" data-x="y">{name}</a><br/>'

    page = "\n".join(
        [
            link("torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl", "1"),
            link("torch-2.13.0%2Bcpu-cp313-cp313-manylinux_2_28_aarch64.whl", "2"),
            link("torch-2.13.0%2Bcpu-cp313-cp313t-manylinux_2_28_x86_64.whl", "3"),
            link("torch-2.13.0%2Bcpu-cp310-cp310-manylinux_2_28_x86_64.whl", "4"),
            link("torch-2.13.0%2Bcpu-cp312-cp312-win_amd64.whl", "5"),
            link("torch-2.13.1%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl", "6"),
            link("torch-2.13.0-cp312-cp312-macosx_14_0_arm64.whl", "7"),
            '<a href="torch-2.13.0%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl">without a hash</a>',
        ]
    )
    assert list(cpu_hashes(page, "2.13.0+cpu")) == ["sha256:" + "1" * 64, "sha256:" + "2" * 64]


@pytest.mark.parametrize("text", ["torch>=2\n", "-e .\n", "torch==2 --hash\n"])
def test_a_line_that_pins_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected name==version"):
        read_pins(text)
