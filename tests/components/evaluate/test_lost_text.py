"""A model whose tokenizer loses a character of an evaluated text gets no figures, in any path."""

import json
import logging

import pytest
from tiny_chats import CHAT, chat_row
from tiny_store import GENRES, commit, copied, make_model, make_row, parquet

from yanmo.common.errors import DataError
from yanmo.evaluate.config import STAGE
from yanmo.evaluate.document_bits import encode, load_model, score
from yanmo.evaluate.documents.reading import Document
from yanmo.evaluate.work import STEPS
from yanmo.formats.chat_tokens import Turn, chat_ids, prompt_ids
from yanmo.formats.round_trip import open_tokenizer
from yanmo.stage.run import main
from yanmo.store.pointers import read_pointer

REPLACE = {"type": "Replace", "pattern": {"String": "月"}, "content": ""}
NORMALIZERS = {
    "replace": REPLACE,
    "nfkc": {"type": "NFKC"},
    "lowercase": {"type": "Lowercase"},
    "strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "sequence": {"type": "Sequence", "normalizers": [{"type": "NFC"}, REPLACE]},
}
TEXTS = {"nfkc": "明月，几时有。", "lowercase": "明月Ab", "strip": "明月\n"}


def lossy(folder, **changes):
    """A model in `folder` whose tokenizer.json says `changes` besides."""
    names = make_model(folder)
    path = folder / "tokenizer.json"
    value = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(value | changes, ensure_ascii=False), encoding="utf-8")
    return names


def committed(ground, folder, **changes):
    return commit(
        ground.store, "train", copied(folder, lossy(folder, **changes)), options={"c": json.dumps(changes)}
    )


@pytest.fixture(autouse=True)
def _log_of_the_stage(caplog):
    caplog.set_level(logging.INFO, logger="yanmo")


def evaluate(ground, *more):
    argv = ground.arguments("--documents", "none", "--samples", "0", *more)
    return main(STAGE, STEPS, argv)


@pytest.mark.parametrize("name", NORMALIZERS)
def test_a_normalizer_that_changes_a_document_ends_the_evaluation_with_65(name, ground, tmp_path, caplog):
    row = make_row("诗", "test", 0, text=TEXTS.get(name, "今夕是何年\n明月几时有。"))
    rows = [row, *(make_row(g, "test", i) for g in GENRES for i in range(1, 4))]
    commit(ground.store, "evaluation_set", {"test-0.parquet": parquet(rows)}, options={"n": name})
    committed(ground, tmp_path / "lossy", normalizer=NORMALIZERS[name])
    assert evaluate(ground) == 65
    assert "its tokenizer loses text: document " in caplog.text and "expected " in caplog.text
    assert read_pointer(ground.store, "dev", "evaluate") is None


def test_the_first_difference_of_a_document_is_named(ground, tmp_path, caplog):
    row = make_row("诗", "test", 0, text="今夕是何年\n明月几时有。")
    commit(ground.store, "evaluation_set", {"test-0.parquet": parquet([row])}, options={"n": 0})
    committed(ground, tmp_path / "lossy", normalizer=REPLACE)
    assert evaluate(ground) == 65
    said = "document " + row["id"] + ", character 8: expected '月' (U+6708), found '几' (U+51E0)"
    assert said in caplog.text and "byte-level tokenizer" in caplog.text


def test_no_path_takes_a_text_that_does_not_come_back(ground, tmp_path):
    loaded = load_model(committed(ground, tmp_path / "lossy", normalizer=REPLACE))
    document = Document("1", "诗", "s", "明月\n几时有\n把酒\n问青天\n不知\n天上")
    loses = pytest.raises(DataError, match="loses text")
    with loses:
        score(loaded, [document], with_tag=True, workers=1)
    with loses:
        encode(loaded, document)


def test_a_turn_of_a_chat_is_looked_at_too(ground, tmp_path):
    lossy(tmp_path / "chat", normalizer=REPLACE)
    tokenizer = open_tokenizer(tmp_path / "chat" / "tokenizer.json")
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    loses = pytest.raises(DataError, match="turn 1 of a chat, character 7: expected '月'")
    with loses:
        chat_ids(tokenizer, [Turn("user", "明月几时有"), Turn("assistant", "把酒", True)], bos=0)
    with loses:
        prompt_ids(tokenizer, [Turn("user", "明月几时有")], bos=0)
    assert chat_row(CHAT)["text"], "the chats of test_chats hold the character too"
