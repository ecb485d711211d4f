"""Running the stage in this process, and reading what it committed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from yanmo.curate.config import STAGE
from yanmo.curate.phases import STEPS
from yanmo.stage.run import main
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer

sys.path.insert(0, str(Path(__file__).parent))  # planted
DOCUMENTS = Path(__file__).parents[2] / "data" / "documents.jsonl"


class Curated:
    """A store on which `yanmo curate` has been run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = FileStore(root)

    def output(self, name: str = "curate") -> Output:
        pointer = read_pointer(self.store, "dev", name)
        assert pointer is not None, name
        return open_reference(self.store, pointer)

    def rows(self, split: str) -> list[dict[str, Any]]:
        output = self.output("evaluation_set" if split == "test" else "curate")
        tables = [pq.read_table(p, partitioning=None) for p in output.paths(f"{split}-*.parquet")]
        return list(pa.concat_tables(tables).to_pylist())

    def report(self) -> dict[str, Any]:
        return dict(json.loads(self.output().path("report.json").read_text(encoding="utf-8")))

    @property
    def is_committed(self) -> bool:
        return any((self.root / "cas" / "curate").glob("*/MANIFEST.json"))


@pytest.fixture
def lines() -> list[dict[str, Any]]:
    """184 documents of all four genres, dirt included."""
    return [json.loads(line) for line in DOCUMENTS.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[..., Path]:
    """Write records to a .jsonl file of the test's folder."""

    def write(name: str, records: list[Any]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = (r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in records)
        path.write_text("".join(t + "\n" for t in texts), encoding="utf-8")
        return path

    return write


@pytest.fixture
def curate(tmp_path: Path) -> Callable[..., Curated]:
    """Run the stage; fails the test unless it ends with the expected code."""

    def run(sources: Any, *arguments: str, store: str = "store", expect: int = 0) -> Curated:
        argv = ["--sources", str(sources), "--store", str(tmp_path / store), *arguments]
        argv += ["--metrics-port", "-1"]
        assert main(STAGE, STEPS, argv) == expect
        return Curated(tmp_path / store)

    return run
