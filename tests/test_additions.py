"""What examples/additions shows of adding something: each diff applies, and what it adds runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DIFFS = sorted((ROOT / "examples/additions").glob("*.diff"))
PAGES = [ROOT / "docs/explanation" / name for name in ("architecture.md", "architecture.zh.md")]


def test_there_is_one_for_each_kind_and_both_pages_lead_to_it() -> None:
    assert {path.stem for path in DIFFS} == {"option", "filter", "schedule", "optimizer", "metric", "stage"}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not [path.name for path in DIFFS if f"(../../examples/additions/{path.name})" not in text]


@pytest.mark.parametrize("path", DIFFS, ids=lambda path: path.stem)
def test_the_diff_applies_to_the_code_as_it_is(path: Path) -> None:
    done = subprocess.run(["git", "apply", "--check", str(path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.process
@pytest.mark.parametrize("path", DIFFS, ids=lambda path: path.stem)
def test_what_the_diff_adds_runs(path: Path, tmp_path: Path) -> None:
    for folder in ("components", "pipelines", "tests/data"):
        kept = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=kept)
    shutil.copy(ROOT / "tests/test_import_rules.py", tmp_path / "tests")
    subprocess.run(["git", "apply", str(path)], cwd=tmp_path, check=True)
    text = path.read_text(encoding="utf-8")
    sources = os.pathsep.join(str(tmp_path / folder) for folder in ("components", "pipelines"))
    environment = {**os.environ, "PYTHONPATH": sources}
    for command in re.findall(r"^    (.+)$", text.partition("\n--- ")[0], re.M):
        words = shlex.split(command)
        if words[0] == "yanmo":
            words[:1] = [sys.executable, "-m", "yanmo.cli"]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
    said = re.search(r"^Its output says `(.+)`\.$", text, re.M)
    assert said and said[1] in done.stdout + done.stderr, done.stdout + done.stderr
