"""What gc leaves of curate's work per file, so that a night reads only what is new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yanmo.tools.store.command import main as store_tool

Run = Callable[..., Any]


def test_after_gc_a_night_reads_only_the_new_file(
    curate: Run, lines: list[dict[str, Any]], write_jsonl: Run
) -> None:
    folder = write_jsonl("raw/1.jsonl", lines[:60]).parent
    first = curate(folder)
    write_jsonl("raw/2.jsonl", lines[60:120])
    curate(folder, "--evaluation-set", "latest")
    mapped = first.root / "cas" / "curate_map"
    before = {path: path.stat().st_mtime_ns for path in mapped.rglob("*") if path.is_file()}
    signed = {path.name for path in (first.root / "cas" / "curate_sign").iterdir()}
    assert store_tool(["gc", "--store", str(first.root), "--older-than", "0", "--delete"]) == 0
    write_jsonl("raw/3.jsonl", lines[120:])
    curate(folder, "--evaluation-set", "latest")
    after = {path: path.stat().st_mtime_ns for path in mapped.rglob("*") if path.is_file()}
    assert len(before) == 8 and before.items() <= after.items(), "the two files were mapped again"
    assert signed < {path.name for path in (first.root / "cas" / "curate_sign").iterdir()}
