"""Tests lie where their sources lie."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def misplaced(sources: Path, tests: Path) -> Iterator[str]:
    """What is wrong with the places of `tests`' files, which test the packages in `sources`.

    A folder of tests has a folder of sources of its name. A test named like a module of its room lies where
    that module lies, one named like a subfolder lies in it, and so does one that imports from it alone.
    """
    for path in sorted(tests.rglob("test_*.py")):
        folder = path.parent.relative_to(tests)
        if not (sources / folder).is_dir():
            yield f"{path.relative_to(tests)}: no sources lie in {folder}"
        elif folder.parts:
            room = folder.parts[0]
            name = path.stem.removeprefix("test_")
            named = {p.parent for p in (sources / room).rglob(f"{name}.py")}
            named |= {p for p in (sources / room).rglob(name) if p.is_dir()}
            if named and sources / folder not in named:
                yield f"{path.relative_to(tests)}: what it is named after is {_shown(named, sources)}"
            used = {p.parent for p in _imported(path, sources) if (sources / room) in p.parents}
            if len(used) == 1 and not named and (sources / folder) not in used:
                yield f"{path.relative_to(tests)}: all that it imports is in {_shown(used, sources)}"


def _imported(path: Path, sources: Path) -> Iterator[Path]:
    """Files of `sources` that a test imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [str(node.module), *(f"{node.module}.{a.name}" for a in node.names)]
        for name in names:
            file = sources.parent.joinpath(*name.split(".")).with_suffix(".py")
            if file.is_file():
                yield file


def _shown(folders: set[Path], sources: Path) -> str:
    return " and ".join(sorted(str(folder.relative_to(sources)) for folder in folders))


@pytest.mark.parametrize(
    "root", [("components/yanmo", "components"), ("pipelines/yanmo_pipelines", "pipelines")]
)
def test_every_test_lies_where_its_sources_lie(root: tuple[str, str]) -> None:
    assert list(misplaced(ROOT / root[0], ROOT / "tests" / root[1])) == []


def test_a_misplaced_test_would_be_found(tmp_path: Path) -> None:
    for module in ("store/work.py", "store/s3/wire.py", "store/s3/client.py"):
        (tmp_path / "house" / module).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "house" / module).touch()
    contents = {
        "store/test_work.py": "",
        "store/test_wire.py": "",
        "store/test_both.py": "from house.store import work\nfrom house.store.s3 import wire",
        "store/test_alone.py": "from house.store.s3.client import Client\nimport house.store.s3.wire",
        "store/s3/test_wire.py": "from house.store.work import Work",
        "gone/test_x.py": "",
    }
    for name, body in contents.items():
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).write_text(body, encoding="utf-8")
    assert list(misplaced(tmp_path / "house", tmp_path / "tests")) == [
        "gone/test_x.py: no sources lie in gone",
        "store/test_alone.py: all that it imports is in store/s3",
        "store/test_wire.py: what it is named after is store/s3",
    ]
