"""The bundled corpus is what its README says, and curates to what its README says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from yanmo.curate.corpus import PLAN_REASONS
from yanmo.store.manifest import file_sha256

CORPUS = Path(__file__).parents[3] / "corpus"


def test_readme_names_the_file_that_is_there() -> None:
    readme = (CORPUS / "README.md").read_text(encoding="utf-8")
    assert file_sha256(CORPUS / "small.jsonl.zst") in readme
    assert f"{(CORPUS / 'small.jsonl.zst').stat().st_size:,} bytes" in readme


@pytest.mark.slow
def test_curate_gives_the_numbers_of_the_readme(curate: Callable[..., Any]) -> None:
    readme = re.sub(r"\s+", " ", (CORPUS / "README.md").read_text(encoding="utf-8"))
    curated = curate(CORPUS / "small.jsonl.zst", "--genres", "shi,ci,wen,fu")
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
