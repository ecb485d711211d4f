"""Files that did not change are not tokenized again, and the cache is that of a run from nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from yanmo.common.errors import ExitCode
from yanmo.formats.token_cache import TokenCache
from yanmo.stage.run import main
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer
from yanmo.tokenize import work as work_module
from yanmo.tokenize.config import STAGE
from yanmo.tokenize.shards import Done, tokenize_file
from yanmo.tokenize.work import STEPS


class Ground:
    """A store with documents, a tokenizer, and what was tokenized."""

    def __init__(self, root: Path, tokenizer: str, commit_documents, monkeypatch) -> None:
        self.root, self._tokenizer, self._commit = root, tokenizer, commit_documents
        self.tokenized: list[str] = []
        self.stop_after = 10**9
        monkeypatch.setattr(work_module, "tokenize_file", self._tokenize_file)

    def _tokenize_file(self, job, segmenter=None) -> Done:
        if len(self.tokenized) >= self.stop_after:
            raise KeyboardInterrupt
        self.tokenized.append(job.documents.name)
        return tokenize_file(job, segmenter)

    def documents(self, shards, valid) -> None:
        self._commit(self.root, shards, valid)

    def run(self, *argv: str) -> int:
        self.tokenized.clear()
        fixed = ["--agreement-sentences=40", "--metrics-port=-1", f"--tokenizer={self._tokenizer}"]
        return main(STAGE, STEPS, ["--store", str(self.root), *fixed, *argv])

    @property
    def cache(self) -> Output:
        store = FileStore(self.root)
        return open_reference(store, read_pointer(store, "dev", "tokenize"))

    def forget(self, *stages: str) -> None:
        for stage in stages:
            shutil.rmtree(self.root / "cas" / stage)


@pytest.fixture
def ground(tmp_path, tokenizer, commit_documents, monkeypatch) -> Ground:
    root = tmp_path / "store"
    made = Path("cas", "tokenizer")  # and nothing that other tests tokenized in that store
    shutil.copytree(tokenizer.store.root / made, root / made)
    return Ground(root, f"tokenizer/{tokenizer.manifest.key}", commit_documents, monkeypatch)


@pytest.fixture
def shards(few):
    return [few[k:400:4] for k in range(4)]


def test_only_what_changed_is_tokenized_and_the_cache_is_that_of_a_run_from_nothing(ground, shards, few):
    ground.documents(shards, few[400:420])
    assert ground.run() == ExitCode.DONE and len(ground.tokenized) == 5
    changed = [shards[0], shards[1][:-1], shards[2], shards[3], few[500:520]]
    ground.documents(changed, few[400:420])
    assert ground.run() == ExitCode.DONE
    assert ground.tokenized == ["train-00001-of-00005.parquet", "train-00004-of-00005.parquet"]
    reused = ground.cache
    ground.forget("tokenize", "token_shard")
    assert ground.run() == ExitCode.DONE and len(ground.tokenized) == 6
    assert ground.cache.manifest.attempt != reused.manifest.attempt
    assert ground.cache.content_digest == reused.content_digest
    TokenCache.open(ground.cache)


def test_agreement_of_files_taken_over_is_what_was_measured_when_they_were_made(
    ground, shards, few, monkeypatch
):
    def of(cache: Output) -> dict[str, float]:
        return cache.manifest.metadata["jieba_agreement"]

    ground.documents(shards, few[400:420])
    assert ground.run() == ExitCode.DONE
    four = of(ground.cache)
    assert four["sentences"] == 4 * 40 and 0.99 < four["boundary_recall"] <= 1
    monkeypatch.setattr("yanmo.tokenize.jieba_agreement.jieba_for", None)
    ground.documents(shards[:3], few[400:420])
    assert ground.run() == ExitCode.DONE and not ground.tokenized
    assert of(ground.cache)["sentences"] == 3 * 40


def test_files_that_come_in_another_order_are_taken_over_in_that_order(ground, shards, few):
    ground.documents(shards, few[400:420])
    assert ground.run() == ExitCode.DONE
    ground.documents(shards[::-1], few[400:420])
    assert ground.run() == ExitCode.DONE and not ground.tokenized
    found = TokenCache.open(ground.cache).split("train").ids.tolist()
    again = ground.cache
    ground.forget("tokenize", "token_shard")
    assert ground.run() == ExitCode.DONE
    assert TokenCache.open(ground.cache).split("train").ids.tolist() == found
    assert ground.cache.content_digest == again.content_digest


def test_a_run_that_ended_halfway_goes_on_after_the_files_that_were_done(ground, shards, few):
    ground.documents(shards, few[400:420])
    ground.stop_after = 3
    assert ground.run() == 130 and len(ground.tokenized) == 3
    ground.stop_after = 10**9
    assert ground.run() == ExitCode.DONE and len(ground.tokenized) == 2


def test_the_cache_stays_whole_when_the_parts_are_gone(ground, shards, few):
    ground.documents(shards, few[400:420])
    assert ground.run() == ExitCode.DONE
    part = next((ground.root / "cas" / "token_shard").rglob("tokens-00000.parquet"))
    assert part.stat().st_nlink == 2, "on a folder a cache and its parts share their bytes"
    ground.forget("token_shard")
    TokenCache.open(ground.cache)


def test_a_damaged_part_is_refused_and_force_mends_it(ground, shards, few, capsys):
    ground.documents(shards, few[400:420])
    assert ground.run() == ExitCode.DONE
    before = ground.cache.content_digest
    ground.forget("tokenize")
    path = next((ground.root / "cas" / "token_shard").rglob("tokens-00000.parquet"))
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    assert ground.run() == ExitCode.DATA
    assert "changed since it was committed" in (stderr := capsys.readouterr().err) and "--force" in stderr
    assert ground.run("--force") == ExitCode.DONE and len(ground.tokenized) == 5
    assert ground.cache.content_digest == before
    TokenCache.open(ground.cache)


def test_parts_in_use_are_named_for_gc_before_the_cache_is_committed(ground, shards, few):
    ground.documents(shards, few[400:420])
    assert ground.run() == ExitCode.DONE
    inputs = next((ground.root / "runs" / "tokenize").rglob("INPUTS.json")).read_text()
    assert inputs.count('"stage": "token_shard"') == 5
