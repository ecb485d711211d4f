"""The summary of skipped tests."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import skips
from skips import is_known, summary


def test_reasons_are_counted_and_the_command_installs_what_is_missing():
    s3 = "Skipped: needs an S3 server: no radosgw on the PATH"
    sinks = "tensorboard is not installed (an extra)"
    assert list(summary([s3, sinks, s3, "needs a CUDA device"])) == [
        "skipped 2: needs an S3 server: no radosgw on the PATH",
        "skipped 1: needs a CUDA device",
        "skipped 1: tensorboard is not installed (an extra)",
        "to run more of them: apt-get install -y radosgw ceph-mon ceph-osd ceph-common openssl && "
        ".venv/bin/python -m pip install -e '.[sinks]'",
    ]


def test_nothing_is_said_where_nothing_can_be_done():
    assert list(summary([])) == []
    assert list(summary(["needs a CUDA device"])) == ["skipped 1: needs a CUDA device"]


SKIPS = """
import pytest
gone = pytest.importorskip("duckdb_that_is_not_there", reason="could not import 'duckdb': no such module")
"""
TESTS = """
import pytest

@pytest.fixture
def server():
    pytest.skip("needs an S3 server: no radosgw on the PATH")

@pytest.mark.parametrize("number", range(5))
def test_of_a_server(server, number): ...

@pytest.mark.skipif(True, reason="needs a CUDA device")
def test_marked(): ...

def test_that_runs(): ...
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_says_at_its_end_what_was_left_out_also_with_workers(workers: str, tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "test_none.py").write_text(SKIPS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "conftest", "-n", workers, "."]
    names = {"PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command[:3], "-p", "xdist", *command[3:]],
        cwd=tmp_path,
        env={**os.environ, **names},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith(("skipped", "to run"))]
    assert said == [
        "skipped 5: needs an S3 server: no radosgw on the PATH",
        "skipped 1: could not import 'duckdb': no such module",
        "skipped 1: needs a CUDA device",
        "to run more of them: apt-get install -y radosgw ceph-mon ceph-osd ceph-common openssl && "
        ".venv/bin/python -m pip install duckdb",
    ]


def test_of_every_need_it_is_known_what_ends_it():
    """Reasons that tests give to `pytest.skip` and `skipif`, as far as they are written there."""
    unknown = []
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "skip" in source else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("skip", "skipif")):
                given = [*node.args, *(k.value for k in node.keywords if k.arg == "reason")]
                words = [c.value for each in given for c in ast.walk(each) if isinstance(c, ast.Constant)]
                reasons = [w for w in words if isinstance(w, str) and re.match(r"needs |.* not installed", w)]
                unknown += [f"{path.name}: {reason}" for reason in reasons if not is_known(reason)]
    assert unknown == []


def test_what_may_be_missing_is_imported_in_no_test_but_asked_for():
    """`pytest.importorskip` skips with the reason that `skips` knows; an import would be an error."""
    optional = {found[1] for each in skips._PIP if (found := re.match(r"could not import '(\w+)'", each))}
    assert {"transformers", "duckdb"} <= optional
    plain = []
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not any(re.search(rf"import {name}|from {name}", source) for name in optional):
            continue
        for node in ast.walk(ast.parse(source)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            plain += [f"{path.name}:{node.lineno}" for n in names if n.partition(".")[0] in optional]
    assert plain == []
