"""Tests look at what comes out of the house; those that reach into it are counted, and become no more."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
MOST = 83
"""Patches of our own code: most make a size or a time small, some stand for a kill or a machine.

Lower it when one goes. A real fault, killed process, file or server is nearly always as short: see
killed_writes.py, servers/fault_proxy.py, train/faults.py. Environment variables and folders are not counted.
"""


def own_patches(source: str) -> list[int]:
    """Lines that replace something of `yanmo` or `yanmo_pipelines` by pytest's monkeypatch."""
    if not re.search(r"\.(setattr|delattr|setitem)\(", source):
        return []
    tree = ast.parse(source)
    own = set()
    for node in ast.walk(tree):
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            if (module or alias.name).partition(".")[0] in ("yanmo", "yanmo_pipelines"):
                own.add(alias.asname or alias.name.partition(".")[0])
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            target = ast.unparse(node.args[0]).strip("'\"")
            name = target.partition(".")[0].partition("[")[0]
            if node.func.attr in ("setattr", "delattr", "setitem") and (
                name in own or name in ("yanmo", "yanmo_pipelines")
            ):
                found.append(node.lineno)
    return found


def test_no_more_of_our_own_code_is_patched() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}
    found = [f"{path.relative_to(TESTS)}:{line}" for path in sources for line in own_patches(sources[path])]
    assert len(found) <= MOST, "\n".join(found)


def test_patches_of_our_own_code_are_told_from_others() -> None:
    source = """
import time
from yanmo.store.runs import lease as lease_module
from yanmo.store.runs.lease import Lease

def test_it(monkeypatch):
    monkeypatch.setattr(Lease, "check", None)
    monkeypatch.setattr(lease_module.time, "time", None)
    monkeypatch.setattr("yanmo.store.runs.lease.TTL_SECONDS", 1)
    monkeypatch.setattr(time, "sleep", None)
    monkeypatch.setenv("HOME", "/")
"""
    assert own_patches(source) == [7, 8, 9]
