"""The commands of the README and of docs/tutorials/kubeflow.md, run as they are written: all end well."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from real_cluster import RealCluster
from test_readme import CLUSTER
from test_readme import commands as blocks_of_readme

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/tutorials/kubeflow.md"


def ended(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


@pytest.mark.road
def test_every_command_of_the_page_ends_well(cluster: RealCluster) -> None:
    commands = re.findall(r"^    \$ ((?:.*\\\n)*.*)", PAGE.read_text(encoding="utf-8"), re.M)
    assert 5 < len(commands) <= 15
    done = ended("\n".join(commands), ROOT, YANMO_CHANNEL=f"tour-{uuid.uuid4().hex[:8]}")
    assert "Promoted: it is the channel's first champion" in done.stdout


@pytest.mark.road
def test_every_command_of_the_readme_ends_well(cluster: RealCluster, tmp_path: Path) -> None:
    (tmp_path / "manifests").symlink_to(ROOT / "manifests")
    clean = "kubectl -n kubeflow delete job rerun-1; yanmo schedule delete schedules.yaml"
    done = ended(f"trap {shlex.quote(clean)} EXIT\n" + "\n".join(blocks_of_readme(CLUSTER)), tmp_path)
    assert "promote  " in done.stdout and "nightly: made" in done.stdout
    assert "job.batch/rerun-1 created" in done.stdout
