"""Wheel and sdist hold all that is needed outside of a checkout, and run there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from installer import ROOT
from tiny_road import SETTINGS, write_text

MOVED = {
    "components/yanmo": "yanmo",
    "pipelines/yanmo_pipelines": "yanmo_pipelines",
    "pipelines/compiled": "yanmo_pipelines/compiled",
    "corpus/small.jsonl.zst": "yanmo/corpus/small.jsonl.zst",
    "corpus/chats.jsonl.zst": "yanmo/corpus/chats.jsonl.zst",
}
"""Where the wheel has what lies elsewhere in a checkout."""


def build(source: Path, kind: str, into: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    [made] = into.iterdir()
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist alone."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    [source] = unpacked.iterdir()
    return build(source, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and with all of this one but for the checkout: a .pth file names that,
    and such a file counts in an environment's own folder alone."""
    venv, uv = tmp_path_factory.mktemp("outside") / "venv", Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("uv is not installed")
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, venv], check=True)
    install = [uv, "pip", "install", "-q", "--offline", "--no-deps", "--python", venv, wheel]
    subprocess.run(install, check=True)
    [packages] = venv.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return venv


def run(environment: Path, folder: Path, *words: str) -> str:
    """What a command of the environment prints, started in a folder outside of any checkout."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("YANMO_", "PYTHON"))}
    command = [str(environment / "bin" / words[0]), *words[1:]]
    done = subprocess.run(command, cwd=folder, env=ours, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    tracked = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", *MOVED], cwd=ROOT, capture_output=True, text=True
    )
    if tracked.returncode:
        pytest.skip("no git, or no repository")
    wanted = {}
    for name in filter(None, tracked.stdout.split("\0")):
        source = next(each for each in MOVED if PurePosixPath(name).is_relative_to(each))
        wanted[MOVED[source] + name.removeprefix(source)] = (ROOT / name).read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        found = {name: archive.read(name) for name in names if ".dist-info/" not in name}
        [metadata] = [archive.read(n).decode() for n in names if n.endswith("/METADATA")]
    assert found.keys() == wanted.keys()
    assert found == wanted
    licences = {name.partition("/licenses/")[2] for name in names if "/licenses/" in name}
    assert licences == {"LICENSE", "corpus/LICENSES.md"}
    assert "License-Expression: MIT AND CC-BY-SA-4.0\n" in metadata


def test_the_sdist_carries_the_lock_files(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"constraints/{path.name}" for path in (ROOT / "constraints").iterdir()} <= names


def test_outside_of_a_checkout_it_finds_corpus_pages_and_pipelines(
    wheel: Path, environment: Path, tmp_path: Path
) -> None:
    code = (
        "import yanmo, yanmo_pipelines.compile as c; from yanmo.curate.sources.entries import read_entries;"
        "[print(entry.place) for entry in read_entries('bundled,bundled-chats')];"
        "print(yanmo.__file__, c.COMPILED / 'chat.yaml')"
    )
    places = run(environment, tmp_path, "python", "-c", code).split()
    assert len(places) == 4
    assert all(Path(place).is_relative_to(environment) and Path(place).is_file() for place in places)
    version = wheel.name.split("-")[1]
    assert run(environment, tmp_path, "yanmo", "--version") == f"yanmo {version}\n"


def test_outside_of_a_checkout_compile_writes_what_is_committed(environment: Path, tmp_path: Path) -> None:
    said = run(environment, tmp_path, "yanmo", "compile").split()
    committed = (ROOT / "pipelines/compiled").rglob("*.yaml")
    wanted = {str(path.relative_to(ROOT)): path.read_bytes() for path in committed}
    assert {name: (tmp_path / name).read_bytes() for name in said} == wanted


@pytest.mark.road
def test_outside_of_a_checkout_own_text_comes_to_a_verdict(environment: Path, tmp_path: Path) -> None:
    write_text(tmp_path / "mine.jsonl", 200)
    settings = [f"{name}={value}" for name, value in {"data_sources": "mine.jsonl", **SETTINGS}.items()]
    words = ["--store", "store", *(word for each in settings for word in ("--set", each))]
    said = run(environment, tmp_path, "yanmo", "run", *words)
    assert "Promoted: it is the channel's first champion." in said and "report  store/report.html" in said
    assert (tmp_path / "store/report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.road
def test_outside_of_a_checkout_the_bundled_corpus_becomes_tokens(environment: Path, tmp_path: Path) -> None:
    words = ["--pipeline", "data_only", "--store", "store", "--set", "model_vocabulary=4096"]
    run(environment, tmp_path, "yanmo", "run", *words)
    [manifest] = tmp_path.glob("store/cas/tokenize/*/MANIFEST.json")
    documents = json.loads(manifest.read_text(encoding="utf-8"))["counts"]["documents"]["train"]
    assert documents.keys() == set("诗词文赋") and sum(documents.values()) > 20_000
