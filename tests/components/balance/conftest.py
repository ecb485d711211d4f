"""A curated store, and running the stage in this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from yanmo.balance.config import STAGE
from yanmo.balance.phases import STEPS
from yanmo.curate import phases as curate_phases
from yanmo.curate.config import STAGE as CURATE
from yanmo.stage.run import main
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer

DOCUMENTS = Path(__file__).parents[2] / "data" / "documents.jsonl"


class Balanced:
    """A store on which `yanmo balance` has been run."""

    def __init__(self, root: Path) -> None:
        self.store = FileStore(root)
        self.root = root

    def output(self, name: str = "balance") -> Output:
        pointer = read_pointer(self.store, "dev", name)
        assert pointer is not None, name
        return open_reference(self.store, pointer)

    def rows(self, split: str = "train", name: str = "balance") -> list[dict[str, Any]]:
        tables = [pq.read_table(p, partitioning=None) for p in self.output(name).paths(f"{split}-*.parquet")]
        return list(pa.concat_tables(tables).to_pylist())

    def characters(self, genre: str, name: str = "balance") -> int:
        rows = self.rows("train", name)
        return sum(len(r["text"].replace("\n", "")) for r in rows if r["genre"] == genre)

    def report(self) -> dict[str, Any]:
        return dict(json.loads(self.output().path("report.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def curated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the fixture's documents, curated."""
    root = tmp_path_factory.mktemp("curated") / "store"
    argv = ["--sources", str(DOCUMENTS), "--store", str(root), "--metrics-port", "-1"]
    argv += ["--shard-characters", "4000"]
    assert main(CURATE, curate_phases.STEPS, argv) == 0
    return root


@pytest.fixture
def balance(curated: Path, tmp_path: Path) -> Callable[..., Balanced]:
    """Run the stage on a copy of the curated store; fails unless it ends with the expected code."""
    root = tmp_path / "store"
    shutil.copytree(curated, root)

    def run(*arguments: str, expect: int = 0) -> Balanced:
        argv = ["--store", str(root), "--metrics-port", "-1", *arguments]
        assert main(STAGE, STEPS, argv) == expect
        return Balanced(root)

    return run
