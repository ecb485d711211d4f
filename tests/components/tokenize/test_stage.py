import hashlib
import json
import os
import re
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
from yanmo.tokenize.config import STAGE
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.vocabulary import dictionary_segmenter
from yanmo.tokenize.work import STEPS

DOCS = Path(__file__).parents[3] / "docs/reference"
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
    monkeypatch.setattr(
        work_module, "dictionary_segmenter", lambda own: dictionary_segmenter(own) if own.user else words
    )


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


def test_documents_without_training_text_are_refused(tmp_path, commit_documents, few, capsys):
    commit_documents(tmp_path / "s", [[]], few[:3])
    assert tokenize(tmp_path / "s") == ExitCode.DATA
    assert "its training files hold no text" in capsys.readouterr().err
    assert not list((tmp_path / "s" / "cas").glob("tok*/*/MANIFEST.json"))


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
    assert found == (3, 4, "5b76cbe7da3dadee", "88cb3578b4e3a9d5")


@pytest.fixture
def worded(tmp_path, commit_documents, few) -> Path:
    root = tmp_path / "store"
    commit_documents(root, [few[:600], [few[0] | {"text": "石墨烯与云计算皆新。" * 9}]], few[600:640])
    return root


@pytest.mark.long
def test_user_dictionary_is_in_the_key_by_its_content_and_kept_with_the_tokenizer(worded, tmp_path, capsys):
    mine, yours = tmp_path / "mine.txt", tmp_path / "yours.txt"
    mine.write_bytes("石墨烯\n云计算 5\n".encode())
    yours.write_bytes("\ufeff石墨烯\r\n\r\n云计算 5\r\n".encode())
    assert tokenize(worded, f"--user-dictionary={mine}") == ExitCode.DONE
    part = latest(worded, "tokenizer")
    assert {"石墨烯", "云计算"} <= set(Segmenter.read(part.path("tokenizer.json")).pieces)
    assert part.path("user_dictionary.txt").read_text(encoding="utf-8") == "石墨烯\n云计算 5\n"
    metadata = part.manifest.metadata
    assert metadata["user_words"] == metadata["user_words_in_vocabulary"] == 2
    agreement = latest(worded).manifest.metadata["jieba_agreement"]
    assert agreement["boundary_recall"] > 0.995

    capsys.readouterr()
    assert tokenize(worded, f"--user-dictionary={yours}") == ExitCode.DONE
    assert "is committed already" in capsys.readouterr().err
    assert tokenize(worded) == ExitCode.DONE
    assert latest(worded, "tokenizer").manifest.key != part.manifest.key

    given = f"tokenizer/{part.manifest.key}"
    assert tokenize(worded, "--tokenizer", given, "--force") == ExitCode.DONE
    assert latest(worded).manifest.metadata["jieba_agreement"] == agreement


def test_user_dictionary_may_lie_in_a_store(worded, tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "mine.txt").write_bytes("石墨烯\n".encode())
    (tmp_path / "more.txt").write_bytes("云计算\n".encode())
    places = f"file://{tmp_path}/words/mine.txt, {tmp_path}/more.txt"
    assert tokenize(worded, "--user-dictionary", places) == ExitCode.DONE
    assert latest(worded, "tokenizer").manifest.metadata["user_words"] == 2


@pytest.mark.parametrize("place", ["{}/absent.txt", "file://{}/absent.txt"])
def test_missing_user_dictionary_is_named(worded, tmp_path, capsys, place):
    assert tokenize(worded, "--user-dictionary", place.format(tmp_path)) == ExitCode.DATA
    assert "absent.txt: expected a text file" in capsys.readouterr().err


@pytest.fixture(scope="module")
def few_documents(few):
    return few[:300:3]


@pytest.fixture
def folder(tmp_path, few_documents, tokenizer, commit_documents) -> Path:
    """The files of a cache of a hundred documents, and its tokenizer.json beside them."""
    root = tokenizer.store.root
    commit_documents(root, [few_documents], few_documents[:3])
    assert tokenize(root, f"--tokenizer=tokenizer/{tokenizer.manifest.key}") == 0
    cache = latest(root)
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
