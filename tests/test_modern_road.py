"""Modern text goes the whole road by one command, with Latin, digits, code, traditional script and emoji.

The one road from raw text to a champion that `make test` goes; test_language_model.py says what it costs and
makes again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from tokenizers import Tokenizer

from yanmo.curate.corpus import PLAN_REASONS
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "train_steps": "6",
    "model_vocabulary": "4096",
    "options": "train.layers=1 train.width=64 train.heads=1 train.feed_forward=64 train.batch_rows=8 "
    "train.ranks=1 train.warmup_steps=2 tokenize.workers=1 tokenize.agreement_sentences=50 "
    "evaluate.samples=1 evaluate.sample_tokens=12 evaluate.workers=1 evaluate.bootstrap_draws=100 "
    "curate.workers=1 curate.split_by=source promote.draws=2000",
}
MIXED = (
    "{text}\n裝脚本第{n}次(Python 3.13, {n}.25 s):\n\n"
    "def total(xs: list[int]) -> int:\n\tif not xs:\n\t\treturn {n}\n    return sum(x * x for x in xs)\n"
    "#include <stdio.h>\nMap<K, V> m{n} = new HashMap<>();\n"
    "{{'x{n}': 0x{n:04x}}} 好吗?好。テスト、Ωmega、naïve、😀"
)
KEPT = (
    "装脚本第",
    ":\n\ndef total(xs: list[int]) -> int:\n\tif not xs:\n\t\treturn ",
    "\n    return sum(x * x for x in xs)\n#include <stdio.h>\nMap<K, V> m",
    "好吗?好。テスト、Ωmega、naïve、😀",
)
"""What must be left of them."""


def write_text(path: Path) -> None:
    """Documents and pieces of novels of the bundled corpus, and 60 notes with a program each."""
    with zstandard.open(ROOT / "corpus/modern.jsonl.zst", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    novels = [r for r in records if r["genre"] == "说"]
    notes = [
        {
            "genre": "笔记",
            "text": MIXED.format(text=novels[-n]["text"][50:350], n=n * 7919),
            "source": f"n{n}",
        }
        for n in range(1, 61)
    ]
    with path.open("w", encoding="utf-8") as file:
        for record in (*novels[:240], *(r for r in records if r["genre"] == "文档"), *notes):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


@pytest.fixture
def road(tmp_path: Path) -> Path:
    """A folder in which `yanmo run` has gone the whole road, with no word about the text's form."""
    folder = tmp_path
    write_text(folder / "text.jsonl")
    command = [sys.executable, "-m", "yanmo.cli", "run", "--store=store", "--channel=mine"]
    for name, value in {**SETTINGS, "data_sources": "text.jsonl"}.items():
        command += ["--set", f"{name}={value}"]
    paths = os.pathsep.join([str(ROOT / "components"), str(ROOT / "pipelines")])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (folder / "printed.txt").write_text(done.stdout, encoding="utf-8")
    return folder


def output(road: Path, name: str) -> Output:
    store = FileStore(road / "store")
    pointer = read_pointer(store, "mine", name)
    assert pointer is not None, name
    return open_reference(store, pointer)


def texts(road: Path) -> dict[str, list[dict[str, Any]]]:
    """Split -> its documents."""
    found = {"train": output(road, "curate").paths("train-*.parquet")}
    for split in ("test", "valid"):
        found[split] = output(road, "evaluation_set").paths(f"{split}-*.parquet")
    tables = {split: [pq.read_table(p, partitioning=None) for p in paths] for split, paths in found.items()}
    return {split: pa.concat_tables(some).to_pylist() for split, some in tables.items()}


def test_raw_text_becomes_a_champion_that_is_measured_and_shown(road: Path) -> None:
    """One test, for it is one run of the pipeline."""
    assert output(road, "champion").manifest.stage == "train"
    check_that_curate_keeps_latin_digits_and_code_and_filters_nearly_nothing(road)
    check_that_the_tokenizer_gives_every_text_back_byte_for_byte_in_few_tokens(road)
    check_that_every_genre_is_measured_beside_the_baselines_and_is_on_the_page(road)


def check_that_curate_keeps_latin_digits_and_code_and_filters_nearly_nothing(road: Path) -> None:
    curated = output(road, "curate")
    for name in ("curate", "evaluation_set", "balance", "tokenizer", "tokenize", "train", "evaluate"):
        assert output(road, name).manifest.metadata["text_form"] == "modern-1", name
    balanced = output(road, "balance").paths("train-*.parquet")[0]
    assert pq.read_schema(balanced).metadata[b"yanmo.text_form"] == b"modern-1"
    documents = [row for rows in texts(road).values() for row in rows]
    notes = [row["text"] for row in documents if row["genre"] == "笔记"]
    assert len(notes) == 60
    assert all(part in note for note in notes for part in KEPT)
    report = json.loads(curated.path("report.json").read_text(encoding="utf-8"))
    filtered = {name: of for name, of in report["dropped"].items() if name not in PLAN_REASONS}
    assert sum(genre["documents"] for of in filtered.values() for genre in of.values()) <= 5, filtered


def check_that_the_tokenizer_gives_every_text_back_byte_for_byte_in_few_tokens(road: Path) -> None:
    tokenizer = Tokenizer.from_file(str(output(road, "tokenizer").path("tokenizer.json")))
    bytes_of = {i for piece, i in tokenizer.get_vocab().items() if re.fullmatch("<0x[0-9A-F]{2}>", piece)}
    for split, rows in texts(road).items():
        tokens, in_bytes, characters = Counter[str](), Counter[str](), Counter[str]()
        for row in rows:
            ids = tokenizer.encode(row["text"], add_special_tokens=False).ids
            assert tokenizer.decode(ids, skip_special_tokens=False) == row["text"]
            tokens[row["genre"]] += len(ids)
            in_bytes[row["genre"]] += sum(i in bytes_of for i in ids)
            characters[row["genre"]] += len(row["text"])
        for genre in ("说", "文档"):
            assert tokens[genre] < 1.1 * characters[genre], f"{split} {genre}"
            assert in_bytes[genre] < 0.05 * tokens[genre], f"{split} {genre}"


def check_that_every_genre_is_measured_beside_the_baselines_and_is_on_the_page(road: Path) -> None:
    printed = (road / "printed.txt").read_text(encoding="utf-8")
    page = (road / "store/report.html").read_text(encoding="utf-8")
    for genre in ("说", "文档", "笔记"):
        (row,) = re.findall(rf"^{genre}((?: +[0-9.]+)+)$", printed, flags=re.MULTILINE)
        assert len(row.split()) >= 5 and all(0 < float(bits) < 40 for bits in row.split())
        assert re.search(rf"^{genre} \(generated\)", printed, flags=re.MULTILINE)
        assert genre in page
