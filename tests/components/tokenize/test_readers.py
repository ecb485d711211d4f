"""Ordinary readers open the cache as docs/reference/stages.md says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from yanmo.stage.run import main
from yanmo.store.file_store import FileStore
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.tokenize.config import STAGE
from yanmo.tokenize.work import STEPS

DOCS = Path(__file__).parents[3] / "docs/reference"


@pytest.fixture(scope="module")
def few_documents(few):
    return few[:300:3]


@pytest.fixture
def folder(tmp_path, few_documents, tokenizer, commit_documents) -> Path:
    """The files of a cache of a hundred documents, and its tokenizer.json beside them."""
    root = tokenizer.store.root
    commit_documents(root, [few_documents], few_documents[:3])
    fixed = ["--agreement-sentences=0", "--metrics-port=-1"]
    given = f"--tokenizer=tokenizer/{tokenizer.manifest.key}"
    assert main(STAGE, STEPS, ["--store", str(root), *fixed, given]) == 0
    store = FileStore(root)
    cache = open_reference(store, read_pointer(store, "dev", "tokenize"))
    paths = [*cache.paths("tokens-*"), *cache.paths("documents-*"), tokenizer.path("tokenizer.json")]
    for path in paths:
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


@pytest.mark.parametrize("page", ["stages.md", "stages.zh.md"])
def test_the_line_in_the_documentation_shows_a_document(folder, few_documents, page):
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(r"python -c '(.+?)' \\\n\s+(.+?)\n", text, re.DOTALL)
    code = re.sub(r"\n    ", "\n", found[1])
    argv = [name.replace("00004", "00002") for name in found[2].split()]
    result = subprocess.run([sys.executable, "-c", code, *argv], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.rstrip("\n") == few_documents[0]["text"]


def test_duckdb_counts_documents_and_reads_ids(folder, few_documents):
    duckdb = pytest.importorskip("duckdb")
    rows = duckdb.sql(
        f"select split, count(*), sum(length) from '{folder}/documents-*.parquet' group by split"
    ).fetchall()
    assert {row[0]: row[1] for row in rows}["train"] == len(few_documents)
    query = duckdb.sql(f"select tokens from '{folder}/tokens-00000-of-00002.parquet' limit 1")
    first = bytes(query.fetchall()[0][0])
    assert first[:2] == b"\x00\x00" and len(first) == 2048


def test_hugging_face_datasets_opens_the_documents(folder, few_documents, tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not one of Yanmo's dependencies")
    loaded = datasets.load_dataset(
        "parquet", data_files=str(folder / "documents-*.parquet"), cache_dir=str(tmp_path / "hf")
    )["train"]
    assert len(loaded) == len(few_documents) + 3
