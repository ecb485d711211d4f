"""Texts that are left out, by their licence or by their ids, and which models learned a text.

All stages are the real ones, on texts of the bundled corpus with licences of their own, and models that train
for four steps.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard

from yanmo.balance.config import STAGE as BALANCE
from yanmo.balance.phases import STEPS as BALANCING
from yanmo.curate.config import STAGE as CURATE
from yanmo.curate.phases import STEPS as CURATING
from yanmo.stage.run import main
from yanmo.store.output import open_reference
from yanmo.tokenize.config import STAGE as TOKENIZE
from yanmo.tools.store.command import main as store_tool

CORPUS = Path(__file__).parents[4] / "corpus/small.jsonl.zst"
SMALL = ("--test-characters", "600", "--valid-characters", "200", "--confirm-characters", "0")


@pytest.fixture
def texts(tmp_path):
    """240 poems, a third each under MIT, CC-BY-NC-4.0 and no licence that anybody says."""
    with CORPUS.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        lines = stream.read(4_000_000).decode("utf-8", "ignore").splitlines()[:-1]
    records = [one for one in map(json.loads, lines) if 40 < len(one["text"]) < 400][:240]
    for number, one in enumerate(records):
        one.pop("license", None)
        one["source"] = "ours"
        if number % 3 < 2:
            one["license"] = ("MIT", "CC-BY-NC-4.0")[number % 3]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
    return path


def made(stage, declared, steps, *more):
    place = ("--store", str(stage.folder), "--channel", "dev", "--metrics-port", "-1")
    return main(declared, steps, [*place, *more])


def curated(stage, texts, *more):
    sources = ("--sources", str(texts), "--filter-sets", "*=none", "--max-filter-share", "1", *SMALL)
    return made(stage, CURATE, CURATING, *sources, *more)


def data(stage, texts, *more, words=("--vocab-size", "800")):
    """curate, balance and tokenize, with a new tokenizer or that of `words`; the token cache."""
    from yanmo.tokenize.work import STEPS as TOKENIZING

    assert curated(stage, texts, *more) == 0
    assert made(stage, BALANCE, BALANCING) == 0
    assert made(stage, TOKENIZE, TOKENIZING, *words) == 0
    return open_reference(stage.store, stage.pointer("tokenize"))


TINY = (
    *("--steps", "4", "--warmup-steps", "1", "--batch-rows", "8", "--context", "32", "--ranks", "1"),
    *("--layers", "1", "--width", "32", "--heads", "2", "--head-width", "16", "--feed-forward", "48"),
    *("--device", "cpu", "--valid-characters", "200"),
)


def trained(stage, cache, base="none"):
    """A model that was trained on a cache for four steps."""
    place = ("--store", str(stage.folder), "--channel", "dev", "--metrics-port", "-1", "--model", base)
    command = [sys.executable, "-m", "yanmo.train", *place, *TINY]
    command += ["--token-cache", f"tokenize/{cache.reference.key}"]
    environment = {**os.environ, "PYTHONPATH": str(CORPUS.parents[1] / "components")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return open_reference(stage.store, stage.pointer("train"))


def train_ids(cache):
    rows = [row for path in cache.paths("documents-*.parquet") for row in pq.read_table(path).to_pylist()]
    return {row["id"] for row in rows if row["split"] == "train"}


def licenses_of(stage):
    return open_reference(stage.store, stage.pointer("curate")).manifest.metadata["licenses"]


def learned(stage, document, capsys):
    capsys.readouterr()
    assert store_tool(["lineage", document, "--store", str(stage.folder), "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    return said["learned"]


@pytest.mark.road
def test_lineage_names_who_learned_a_text_and_a_run_with_a_list_has_not(stage, texts, capsys):
    cache = data(stage, texts)
    document = sorted(train_ids(cache))[7]
    first = trained(stage, cache)
    ids = stage.folder.parent / "ids.txt"
    ids.write_text(document + "\n", encoding="utf-8")
    words = ("--tokenizer", f"tokenizer/{stage.pointer('tokenizer').key}")
    without = data(stage, texts, "--exclude", str(ids), words=words)
    assert document not in train_ids(without)
    child = trained(stage, without, base=f"train/{first.reference.key}")
    said = learned(stage, document, capsys)
    assert said["directly"] == [f"train/{first.reference.key}"]
    assert said["by_start"] == [f"train/{child.reference.key}"]
    assert said["tokenizers"] and not said["evaluation_sets"] and not said["champions"]
    clean = trained(stage, data(stage, texts, "--exclude", str(ids)))
    said = learned(stage, document, capsys)
    assert f"train/{clean.reference.key}" not in said["directly"] + said["by_start"]


def test_a_tokenizer_is_built_from_training_texts_alone(stage, texts, capsys):
    cache = data(stage, texts)
    rows = [row for path in cache.paths("documents-*.parquet") for row in pq.read_table(path).to_pylist()]
    of_split = {row["split"]: row["id"] for row in rows}
    tokenizer = [f"tokenizer/{stage.pointer('tokenizer').key}"]
    assert learned(stage, of_split["train"], capsys)["tokenizers"] == tokenizer
    assert learned(stage, of_split["valid"], capsys)["tokenizers"] == []


@pytest.mark.long
def test_only_texts_under_the_licences_that_a_run_allows_are_kept(stage, texts, caplog):
    assert curated(stage, texts) == 0
    assert set(licenses_of(stage)) == {"MIT", "CC-BY-NC-4.0", "unknown"}
    assert curated(stage, texts, "--allow-licenses", "mit, unknown") == 0
    assert set(licenses_of(stage)) == {"MIT", "unknown"} and "CC-BY-NC-4.0" in caplog.text
    listed = stage.pointer("curate")
    assert curated(stage, texts, "--allow-licenses", "Unknown,MIT") == 0
    assert stage.pointer("curate") == listed, "two spellings of one list are one key"
    assert curated(stage, texts, "--allow-licenses", "GPL-3.0") == 65
    assert "--allow-licenses allows no licence of this text: it is under" in caplog.text


def test_of_two_copies_the_one_under_an_allowed_licence_is_kept(stage, texts):
    records = [json.loads(line) for line in texts.read_text(encoding="utf-8").splitlines()]
    both = [{**r, "license": "CC-BY-NC-4.0"} for r in records] + [
        {**r, "text": r["text"].replace("。", "\n"), "license": "MIT"} for r in records
    ]
    texts.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in both), encoding="utf-8")
    assert curated(stage, texts, "--allow-licenses", "MIT") == 0
    assert set(licenses_of(stage)) == {"MIT"} and licenses_of(stage)["MIT"] > 150


@pytest.mark.road
def test_a_copy_that_was_learned_in_a_texts_place_counts(stage, texts, capsys):
    records = [json.loads(line) for line in texts.read_text(encoding="utf-8").splitlines()]
    both = [one for r in records for one in (r, {**r, "text": r["text"].replace("。", "\n")})]
    texts.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in both), encoding="utf-8")
    cache = data(stage, texts)
    kept = train_ids(cache)
    output = open_reference(stage.store, stage.pointer("curate"))
    copies = pq.read_table(output.path("decisions.parquet"), columns=["id", "other_id"]).to_pylist()
    dropped, model = next(c["id"] for c in copies if c["other_id"] in kept and c["id"] not in kept), None
    model = trained(stage, cache)
    assert learned(stage, dropped, capsys)["directly"] == [f"train/{model.reference.key}"]
