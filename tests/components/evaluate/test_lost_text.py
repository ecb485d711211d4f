"""A model whose tokenizer loses a character of an evaluated text gets no figures, in any path."""

import json
import logging

import pytest
import torch
from tiny_chats import CHAT, chat_row
from tiny_store import GENRES, commit, copied, make_model, make_row, parquet

from yanmo.common.errors import DataError
from yanmo.evaluate.bits.of_documents import encode, load_model, score
from yanmo.evaluate.config import STAGE
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


def without_bytes(folder):
    """A tokenizer whose unknown token swallows what has no piece."""
    make_model(folder)
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    vocabulary = [
        ["␀" * (i + 1) if piece == "月" else piece, s] for i, (piece, s) in enumerate(model["vocab"])
    ]
    return {**model, "byte_fallback": False, "vocab": vocabulary}


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


def test_a_decoder_that_drops_and_an_unknown_token_end_it_too(ground, tmp_path, caplog):
    dropping = {"type": "Replace", "pattern": {"String": "月"}, "content": ""}
    fallback = [{"type": "ByteFallback"}, {"type": "Fuse"}]
    committed(ground, tmp_path / "a", decoder={"type": "Sequence", "decoders": [*fallback, dropping]})
    assert evaluate(ground) == 65 and "loses text" in caplog.text
    caplog.clear()
    committed(ground, tmp_path / "b", model=without_bytes(tmp_path / "b"))
    assert evaluate(ground) == 65 and "expected '月'" in caplog.text and "found '<'" in caplog.text


def test_a_normalizer_that_changes_nothing_in_these_texts_moves_no_figure(ground, tmp_path):
    """NFC, as Qwen's tokenizers have it; and a lossy one, on texts without the lost character."""
    plain, document = load_model(ground.model), Document("1", "诗", "s", "明月几时有")
    for i, changes in enumerate(({"type": "NFC"}, {**REPLACE, "pattern": {"String": "龘"}})):
        other = load_model(committed(ground, tmp_path / f"{i}", normalizer=changes))
        ours, theirs = (score(m, [document], with_tag=True, workers=1) for m in (plain, other))
        assert ours.bits.tolist() == theirs.bits.tolist()
        assert ours.bits_with_tag.tolist() == theirs.bits_with_tag.tolist()


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


def test_bits_of_an_unknown_character_are_those_of_its_bytes(ground):
    """Nothing of a character without a piece is free: its bytes are tokens, and each is charged."""
    loaded = load_model(ground.model)
    ids = loaded.encode(["😀"])[0]
    assert [loaded.tokenizer.id_to_token(i) for i in ids[1:-1]] == ["<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]
    with torch.no_grad():
        logits = loaded.model(torch.tensor([ids]))[0].double()
    bits = -torch.log_softmax(logits, -1)[range(len(ids) - 1), ids[1:]].sum().item() / torch.tensor(2.0).log()
    found = score(loaded, [Document("1", "诗", "s", "😀")], with_tag=False, workers=1)
    assert found.tokens.tolist() == [5] and found.bits[0] == pytest.approx(float(bits), abs=1e-3)
