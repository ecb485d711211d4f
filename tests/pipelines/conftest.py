"""The tiny pipeline of this folder, compiled, and a way to run it as a user does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = [str(ROOT / "components"), str(ROOT / "pipelines"), str(Path(__file__).parent)]
POEM = "春江潮水连海平\n海上明月共潮生\n"


@pytest.fixture(scope="session")
def tiny_yaml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_stages.pipeline import PIPELINE

    from yanmo_pipelines.compile import compile_pipeline

    path = tmp_path_factory.mktemp("compiled") / "tiny.yaml"
    compile_pipeline(PIPELINE, path)
    return path


@pytest.fixture
def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(SOURCE_ROOTS)}


@pytest.fixture
def start(
    tmp_path: Path, tiny_yaml: Path, environment: dict[str, str]
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `yanmo run` of the tiny pipeline on a store in tmp_path; given pairs are its --set."""
    (tmp_path / "lines.txt").write_text(POEM, encoding="utf-8")
    started: list[subprocess.Popen[str]] = []

    def begin(*settings: str, flags: tuple[str, ...] = (), **variables: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "yanmo.cli",
            "run",
            f"--pipeline={tiny_yaml}",
            "--store=runs/demo",
            *flags,
        ]
        for setting in settings:
            command += ["--set", setting]
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
