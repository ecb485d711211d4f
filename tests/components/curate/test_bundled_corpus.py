"""The bundled corpus is what its README says, and curates to what its README says."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from yanmo.curate.corpus import PLAN_REASONS
from yanmo.store.manifest import file_sha256

CORPUS = Path(__file__).parents[3] / "corpus"


@pytest.mark.parametrize("name", ["small.jsonl.zst", "modern.jsonl.zst", "chats.jsonl.zst"])
def test_readme_names_the_file_that_is_there(name: str) -> None:
    readme = (CORPUS / "README.md").read_text(encoding="utf-8")
    assert file_sha256(CORPUS / name) in readme
    assert f"{(CORPUS / name).stat().st_size:,} bytes" in readme


def test_readme_counts_the_modern_texts_and_each_is_whole() -> None:
    readme = (CORPUS / "README.md").read_text(encoding="utf-8")
    texts, sizes = Counter[str](), Counter[str]()
    with (CORPUS / "modern.jsonl.zst").open("rb") as file:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8"):
            record = json.loads(line)
            named = "\0".join(record[name] for name in ("source", "title", "author", "text"))
            assert record["id"] == hashlib.sha256(named.encode()).hexdigest()[:16]
            book = record["source"].split("/")[2] if record["genre"] == "说" else "文档"
            texts[book] += 1
            sizes[record["genre"]] += len(record["text"])
            assert (record.get("license"), record["author"]) == ("MIT", "Yanmo") or record["genre"] == "说"
    assert all(f"{size:,}" in readme for size in sizes.values())
    for book in texts.keys() - {"文档"}:
        assert f"{book} {texts[book]}" in readme
    assert f"| 文档, documents | {texts['文档']} |" in readme
    assert f"{texts.total():,} texts in two genres" in readme


@pytest.mark.long
def test_curate_gives_the_numbers_of_the_readme(curate: Callable[..., Any]) -> None:
    readme = re.sub(r"\s+", " ", (CORPUS / "README.md").read_text(encoding="utf-8"))
    curated = curate(CORPUS / "small.jsonl.zst")
    report, counts = curated.report(), curated.output().manifest.counts
    dropped = {name: sum(g["documents"] for g in v.values()) for name, v in report["dropped"].items()}
    filtered = sum(n for name, n in dropped.items() if name not in PLAN_REASONS)
    said = (
        f"filters {filtered} of the 36,000 texts, finds {dropped['duplicate']} copies and "
        f"{dropped['near_duplicate']} near copies, holds out "
        f"{dropped['evaluation_set']:,} for validation, test and confirmation, and drops "
        f"{dropped['overlap']} that share a run of 13 characters with those; "
        f"{sum(counts['documents']['train'].values()):,} texts of "
        f"{sum(counts['characters']['train'].values()):,} characters remain for training."
    )
    assert said in readme
    held = curated.output("evaluation_set").manifest.counts
    assert held["documents"]["test"].keys() == {"诗", "词", "文", "赋"}
    assert sum(held["characters"]["test"].values()) < 200_000
    assert held["documents"]["confirm"].keys() == held["documents"]["test"].keys()
    assert sum(held["characters"]["confirm"].values()) < 100_000
