"""What benchmarks/same_results.py says of two stores: equal ones are equal, and a change is named."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks")]

from same_results import compare, make  # noqa: E402


def store_of(root: Path, texts: dict[str, str], key: str = "a" * 64) -> Path:
    """A store with an output of one stage that a pointer names."""
    files = [{"path": p, "role": "content", "bytes": len(t), "sha256": t * 12} for p, t in texts.items()]
    files.append({"path": "metrics.prom", "role": "record", "bytes": 1, "sha256": str(root)})
    value = {"stage": "curate", "key": key, "created_at": str(root), "files": files, "counts": {"rows": 1}}
    value["content_digest"] = json.dumps(texts)
    (root / "cas/curate" / key).mkdir(parents=True)
    (root / "cas/curate" / key / "MANIFEST.json").write_text(json.dumps(value))
    (root / "pointers/dev").mkdir(parents=True)
    named = json.dumps({"content_digest": value["content_digest"]})
    (root / "pointers/dev/curate.json").write_text(named)
    return root


def test_equal_contents_are_equal_and_what_differs_is_named_by_its_file(tmp_path: Path) -> None:
    a = store_of(tmp_path / "a", {"x.parquet": "1", "y.parquet": "2"})
    same = store_of(tmp_path / "b", {"x.parquet": "1", "y.parquet": "2"}, "b" * 64)
    assert compare(a, a) == {"curate": [], "keys": [], "pointers": []}
    rows = compare(a, same)
    assert rows["curate"] == rows["pointers"] == [] and len(rows["keys"]) == 2
    other = store_of(tmp_path / "c", {"x.parquet": "1", "y.parquet": "3"})
    rows = compare(a, other)
    (said,) = rows["curate"]
    assert said.startswith("y.parquet: ") and rows["keys"] == [] and len(rows["pointers"]) == 1
    shutil.rmtree(other / "cas")
    assert compare(a, other)["curate"][0].startswith("an output only in A")


def test_a_side_made_with_other_steps_is_not_overwritten_and_a_finished_one_is_used(tmp_path: Path) -> None:
    (tmp_path / "side.json").write_text(json.dumps({"steps": 1}))
    with pytest.raises(SystemExit, match="other steps"):
        make("0" * 40, tmp_path, 2)
    make("0" * 40, tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["side.json"]
