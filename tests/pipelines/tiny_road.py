"""The whole road on a little real text, with a model so tiny that a run takes seconds."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import zstandard

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "corpus/small.jsonl.zst"
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "components"), str(ROOT / "pipelines")])}
SETTINGS = {
    "train_steps": "6",
    "model_vocabulary": "4096",
    "options": "train.layers=1 train.width=64 train.heads=1 train.feed-forward=64 train.batch_rows=8 "
    "train.ranks=1 train.warmup_steps=2 tokenize.workers=1 tokenize.agreement_sentences=50 "
    "evaluate.samples=1 evaluate.sample_tokens=12 evaluate.workers=1 evaluate.bootstrap_draws=100",
    "curate.max_filter_share": "0.6",
    "curate.workers": "1",
    "promote.draws": "2000",
}
ALL = ["curate", "balance", "tokenize", "train", "evaluate", "promote"]


def write_text(path: Path, per_genre: int, after: int = 0) -> None:
    """Texts of each genre of the bundled corpus: the first ones, or those after so many."""
    seen: dict[str, int] = defaultdict(int)
    with zstandard.open(CORPUS, "rt", encoding="utf-8") as lines, path.open("w", encoding="utf-8") as out:
        for line in lines:
            genre = json.loads(line)["genre"]
            seen[genre] += 1
            if after < seen[genre] <= after + per_genre:
                out.write(line)


def committed_in(log: str) -> list[tuple[str, str]]:
    """What was made by the log of a run: the stage that says so, and `stage/KEY` (the first digits)."""
    return re.findall(r"^\S+ (\w+) +committed (\w+/\w+)", log, flags=re.MULTILINE)


def stages_of(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """The stages that made something, each once."""
    return list(dict.fromkeys(stage for stage, _ in committed_in(ended.stderr)))
