"""Options of the vocabulary through the whole stage."""

from pathlib import Path

import pytest

from yanmo.common.errors import ExitCode
from yanmo.stage.run import main
from yanmo.store.file_store import FileStore
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.tokenize import work as work_module
from yanmo.tokenize.config import STAGE
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.work import STEPS

FAST = ["--vocab-size=2048", "--agreement-sentences=200", "--metrics-port=-1", "--workers=1"]


def tokenize(root: Path, *argv: str) -> int:
    return main(STAGE, STEPS, ["--store", str(root), *FAST, *argv])


def latest(root: Path, name: str = "tokenize"):
    store = FileStore(root)
    return open_reference(store, read_pointer(store, "dev", name))


@pytest.fixture(autouse=True)
def dictionary_read_once(lexicon, monkeypatch):
    monkeypatch.setattr(work_module, "read_lexicon", lambda path: lexicon)


@pytest.fixture
def store(tmp_path, commit_documents, few) -> Path:
    root = tmp_path / "store"
    commit_documents(root, [few[:600], [few[0] | {"text": "石墨烯与云计算皆新。" * 9}]], few[600:640])
    return root


@pytest.mark.long
def test_user_dictionary_is_in_the_key_by_its_content_and_kept_with_the_tokenizer(store, tmp_path, capsys):
    mine, yours = tmp_path / "mine.txt", tmp_path / "yours.txt"
    mine.write_bytes("石墨烯\n云计算 5\n".encode())
    yours.write_bytes("\ufeff石墨烯\r\n\r\n云计算 5\r\n".encode())
    assert tokenize(store, f"--user-dictionary={mine}") == ExitCode.DONE
    part = latest(store, "tokenizer")
    assert {"石墨烯", "云计算"} <= set(Segmenter.read(part.path("tokenizer.json")).pieces)
    assert part.path("user_dictionary.txt").read_text(encoding="utf-8") == "石墨烯\n云计算 5\n"
    metadata = part.manifest.metadata
    assert metadata["user_words"] == metadata["user_words_in_vocabulary"] == 2
    agreement = latest(store).manifest.metadata["jieba_agreement"]
    assert agreement["boundary_recall"] > 0.995

    capsys.readouterr()
    assert tokenize(store, f"--user-dictionary={yours}") == ExitCode.DONE
    assert "is committed already" in capsys.readouterr().err
    assert tokenize(store) == ExitCode.DONE
    assert latest(store, "tokenizer").manifest.key != part.manifest.key

    given = f"tokenizer/{part.manifest.key}"
    assert tokenize(store, "--tokenizer", given, "--force") == ExitCode.DONE
    assert latest(store).manifest.metadata["jieba_agreement"] == agreement


def test_user_dictionary_may_lie_in_a_store(store, tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "mine.txt").write_bytes("石墨烯\n".encode())
    (tmp_path / "more.txt").write_bytes("云计算\n".encode())
    places = f"file://{tmp_path}/words/mine.txt, {tmp_path}/more.txt"
    assert tokenize(store, "--user-dictionary", places) == ExitCode.DONE
    assert latest(store, "tokenizer").manifest.metadata["user_words"] == 2


@pytest.mark.parametrize("place", ["{}/absent.txt", "file://{}/absent.txt"])
def test_missing_user_dictionary_is_named(store, tmp_path, capsys, place):
    assert tokenize(store, "--user-dictionary", place.format(tmp_path)) == ExitCode.DATA
    assert "absent.txt: expected a text file" in capsys.readouterr().err
