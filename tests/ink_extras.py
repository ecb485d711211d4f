"""Packages with plugins, installed as anybody installs one, beside Yanmo's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/ink-extras"


def installed(folder: Path, package: Path = EXAMPLE) -> Path:
    """Install a package into a folder, by pip, without a network; the folder."""
    source = folder / "source"  # pip builds beside the sources
    source.mkdir(parents=True)
    for path in package.iterdir():
        if path.is_file():
            (source / path.name).write_bytes(path.read_bytes())
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--disable-pip-version-check", "--no-index", "--target", str(folder / "site"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def written(folder: Path, name: str, version: str, group: str, codes: Mapping[str, str]) -> Path:
    """The sources of a package with plugins: each is the function `planted` in a module of its own.

    Args:
        codes: plugin -> text of its module.
    """
    folder.mkdir(parents=True)
    for plugin, code in codes.items():
        (folder / f"{name}_{plugin}.py").write_text(code, encoding="utf-8")
    text = (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8").split("[project]")[0]
    text += f'[project]\nname = "{name}"\nversion = "{version}"\n'
    text += f'[project.entry-points."{group}"]\n'
    text += "".join(f'{plugin} = "{name}_{plugin}:planted"\n' for plugin in codes)
    text += f"[tool.setuptools]\npy-modules = {[f'{name}_{plugin}' for plugin in codes]}\n"
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def run(site: Path | None, stage: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a stage in a process of its own, which sees the packages in `site`."""
    paths = [str(ROOT / "components"), *([str(site)] if site else []), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", f"yanmo.{stage}", *argv]
    return subprocess.run(command, capture_output=True, text=True, env=environment)
