"""The summary of skipped tests."""

import ast
import re
from pathlib import Path

import skips
from skips import summary


def test_reasons_are_counted_and_the_command_installs_what_is_missing():
    s3 = "Skipped: needs an S3 server: no radosgw on the PATH"
    harness = "lm-evaluation-harness is not installed (an extra)"
    assert list(summary([s3, harness, s3, "needs a CUDA device"])) == [
        "skipped 2: needs an S3 server: no radosgw on the PATH",
        "skipped 1: lm-evaluation-harness is not installed (an extra)",
        "skipped 1: needs a CUDA device",
        "to run more of them: apt-get install -y radosgw ceph-mon ceph-osd ceph-common openssl && "
        ".venv/bin/python -m pip install -e '.[harness]'",
    ]


def test_nothing_is_said_where_nothing_can_be_done():
    assert list(summary([])) == []
    assert list(summary(["needs a CUDA device"])) == ["skipped 1: needs a CUDA device"]


def test_what_may_be_missing_is_imported_in_no_test_but_asked_for():
    """`pytest.importorskip` skips with the reason that `skips` knows; an import would be an error."""
    optional = {found[1] for each in skips._PIP if (found := re.match(r"could not import '(\w+)'", each))}
    assert {"transformers", "duckdb"} <= optional
    plain = []
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            plain += [f"{path.name}:{node.lineno}" for n in names if n.partition(".")[0] in optional]
    assert plain == []
