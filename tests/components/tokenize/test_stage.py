import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import survivors

from yanmo.common.errors import ExitCode
from yanmo.formats.token_cache import TokenCache
from yanmo.stage.run import main
from yanmo.store.file_store import FileStore
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.tokenize import work as work_module
from yanmo.tokenize.config import STAGE, TokenizeConfig
from yanmo.tokenize.work import STEPS

FAST = ["--vocab-size=2048", "--agreement-sentences=50", "--metrics-port=-1"]


def tokenize(root: Path, *argv: str) -> int:
    return main(STAGE, STEPS, ["--store", str(root), *FAST, *argv])


def latest(root: Path, name: str = "tokenize"):
    store = FileStore(root)
    return open_reference(store, read_pointer(store, "dev", name))


def forget(root: Path, *stages: str) -> None:
    """Uncommit, so that the next run makes it again."""
    for stage in stages:
        for manifest in (root / "cas" / stage).glob("*/MANIFEST.json"):
            manifest.unlink()


@pytest.fixture(autouse=True)
def dictionary_read_once(lexicon, words, monkeypatch):
    """The dictionary and its tables take a second to make; each test here would make them again."""
    monkeypatch.setattr(work_module, "read_lexicon", lambda path: lexicon)
    monkeypatch.setattr(work_module, "dictionary_segmenter", lambda lexicon: words)


@pytest.fixture
def store(tmp_path, commit_documents, few) -> Path:
    """A store with four train shards and validation documents."""
    root = tmp_path / "store"
    train, valid = few[:1200], few[1200:1300]
    commit_documents(root, [train[k::4] for k in range(4)], valid)
    return root


def test_cache_holds_every_document_and_its_tokenizer(store, few):
    assert tokenize(store) == ExitCode.DONE
    output = latest(store)
    cache = TokenCache.open(output)
    TokenCache.open(output)
    assert [len(cache.split(name)) for name in ("train", "valid")] == [1200, 100]
    assert len(cache.tokens) == 5
    assert (cache.vocab_size, cache.bos, cache.eos) == (2048, 0, 1)
    assert cache.genres == ["诗", "词", "文", "赋"] and cache.tag_ids == [4, 5, 6, 7]
    assert latest(store, "tokenizer").content_digest == cache.tokenizer.content_digest
    assert cache.tokenizer.manifest.metadata["genres"] == ["诗", "词", "文", "赋"]
    counts, metadata = output.manifest.counts, output.manifest.metadata
    assert sum(counts["documents"]["train"].values()) == 1200
    assert sum(counts["tokens"]["valid"].values()) == cache.split("valid").length.sum()
    assert metadata["jieba_agreement"]["boundary_recall"] > 0.99
    assert metadata["judged_documents"] >= 5


def test_second_run_finds_its_key_committed(store, capsys):
    assert tokenize(store) == ExitCode.DONE
    capsys.readouterr()
    assert tokenize(store) == ExitCode.DONE
    assert "is committed already; nothing to do" in capsys.readouterr().err


@pytest.mark.process
def test_any_number_of_workers_gives_the_same_bytes(store):
    assert tokenize(store, "--workers=1") == ExitCode.DONE
    alone = latest(store)
    forget(store, "tokenize", "tokenizer", "token_shard")
    assert tokenize(store, "--workers=3") == ExitCode.DONE
    together = latest(store)
    assert together.manifest.attempt != alone.manifest.attempt
    assert together.content_digest == alone.content_digest
    assert together.manifest.execution["workers"] == 3


@pytest.mark.long
def test_cache_is_the_same_without_numba(store):
    assert tokenize(store) == ExitCode.DONE
    fast = latest(store)
    env = os.environ | {"YANMO_NO_NUMBA": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "yanmo.tokenize", "--store", store, *FAST]
    forget(store, "tokenize", "tokenizer", "token_shard")
    subprocess.run(command, env=env, check=True, capture_output=True)
    slow = latest(store)
    assert slow.manifest.attempt != fast.manifest.attempt
    assert slow.content_digest == fast.content_digest


def test_given_tokenizer_is_used_as_it_is(store, tmp_path, commit_documents, few, capsys):
    assert tokenize(store) == ExitCode.DONE
    first = latest(store, "tokenizer")
    commit_documents(store, [few[1300:1500]], [])
    given = f"tokenizer/{first.manifest.key}"
    assert tokenize(store, "--tokenizer", given) == ExitCode.DONE
    assert "options of the vocabulary have no effect" in capsys.readouterr().err
    assert latest(store).part("tokenizer").manifest.key == first.manifest.key
    assert len(list((store / "cas" / "tokenizer").glob("*/MANIFEST.json"))) == 1
    assert len(TokenCache.open(latest(store)).split("valid")) == 0


def test_changed_shard_leaves_the_files_of_the_others_as_they_are(store, commit_documents, few):
    assert tokenize(store) == ExitCode.DONE
    before = {e.path: e.sha256 for e in latest(store).entries("*.parquet")}
    given = f"tokenizer/{latest(store, 'tokenizer').manifest.key}"
    shards = [few[:1200][k::4] for k in range(4)]
    shards[2] = shards[2][:-1]
    commit_documents(store, shards, few[1200:1300])
    assert tokenize(store, "--tokenizer", given) == ExitCode.DONE
    after = {e.path: e.sha256 for e in latest(store).entries("*.parquet")}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"tokens-00002-of-00005.parquet", "documents-00002-of-00005.parquet"}


def test_tokenizer_of_another_kind_is_refused(store, capsys):
    assert tokenize(store) == ExitCode.DONE
    cache = latest(store)
    assert tokenize(store, "--tokenizer", f"tokenize/{cache.manifest.key}") == ExitCode.DATA
    assert "--tokenizer tokenize/" in (err := capsys.readouterr().err)
    assert "expected an output of tokenizer; give tokenizer/KEY" in err


def test_missing_documents_end_with_what_to_run(tmp_path, capsys):
    assert tokenize(tmp_path / "empty") == ExitCode.DATA
    assert "run `yanmo balance` first" in capsys.readouterr().err


def test_documents_without_training_text_are_refused(tmp_path, commit_documents, few, capsys):
    commit_documents(tmp_path / "s", [[]], few[:3])
    assert tokenize(tmp_path / "s") == ExitCode.DATA
    assert "its training files hold no text" in capsys.readouterr().err
    assert not list((tmp_path / "s" / "cas").glob("tok*/*/MANIFEST.json"))


def test_changed_input_file_is_refused(store, capsys):
    path = next(store.rglob("train-00001*"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert tokenize(store) == ExitCode.DATA
    assert "changed since it was committed" in capsys.readouterr().err
    assert not list((store / "cas" / "tokenize").rglob("*"))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--vocab-size=100", "--vocab-size 100: expected a whole number from 512 to 300000"),
        ("--vocab-size=1e9", "expected a whole number from 512 to 300000"),
        ("--dictionary-weight=nan", "--dictionary-weight nan"),
        ("--min-character-count=0", "--min-character-count 0"),
        ("--workers=-1", "--workers -1"),
        ("--no-such-option=1", "no-such-option"),
    ],
)
def test_wrong_option_is_refused_before_anything_is_read(tmp_path, option, message, capsys):
    assert tokenize(tmp_path, option) == ExitCode.USAGE
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.fault
def test_killed_run_leaves_nothing_committed_and_the_next_one_finishes(store):
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "yanmo.tokenize", "--store", store, *FAST, "--workers=2"]
    child = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list(store.glob("cas/tokenize/*/*/config.yaml")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not list(store.glob("cas/tokenize/*/MANIFEST.json"))
    assert tokenize(store) == ExitCode.DONE
    TokenCache.open(latest(store))
    assert not survivors(child.pid, 10), "workers outlived the stage"


def test_same_documents_give_the_tokens_of_today(tmp_path, commit_documents):
    """Golden: when this fails, the output changed, so `revision` in tokenize/config.py must be raised, or
    TOKENIZER_REVISION in tokenize/work.py where the vocabulary did."""
    texts = ["春眠不觉晓，处处闻啼鸟。\n夜来风雨声，花落知多少。", "清华大学 Hello 2026 𪚥", "呵呵呵"]
    documents = [{"text": text, "genre": genre} for text, genre in zip(texts, "诗文曲", strict=True)]
    commit_documents(tmp_path, [documents], documents[:1])
    assert tokenize(tmp_path, "--vocab-size=512") == ExitCode.DONE
    cache = latest(tmp_path)
    vocabulary = next(e.sha256 for e in cache.part("tokenizer").entries("tokenizer.json"))
    ids = [tokens.tolist() for tokens in TokenCache.open(cache).tokens]
    tokens = hashlib.sha256(json.dumps(ids).encode()).hexdigest()
    found = STAGE.revision, work_module.TOKENIZER_REVISION, vocabulary[:16], tokens[:16]
    assert found == (2, 4, "5b76cbe7da3dadee", "88cb3578b4e3a9d5")


def test_configuration_needs_only_the_standard_library():
    code = "import sys, yanmo.tokenize.config; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    loaded = set(json.loads(done.stdout.replace("'", '"')))
    assert not loaded & {"numpy", "pyarrow", "numba", "jieba", "tokenizers", "torch"}


def test_stage_never_loads_torch():
    code = "import sys, yanmo.tokenize.work; print('torch' in sys.modules, 'numba' in sys.modules)"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]


def test_options_that_change_no_byte_are_not_in_the_key():
    from yanmo.options.fields import by_kind

    assert set(by_kind(TokenizeConfig(), "semantic")) == {
        "vocab_size",
        "min_character_count",
        "dictionary_weight",
    }
