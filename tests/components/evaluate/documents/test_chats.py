"""Chats are read as their model was trained, and only their answers count."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from tiny_chats import CHAT, chat_row
from tiny_store import HAN, commit, make_row, make_tokenizer, parquet, read
from tokenizers import Tokenizer

from yanmo.common.errors import DataError
from yanmo.evaluate.config import STAGE
from yanmo.evaluate.document_bits import load_model, score
from yanmo.evaluate.documents.reading import Document, read_split, turns_of
from yanmo.evaluate.work import STEPS
from yanmo.evaluate.writing.contamination import contamination
from yanmo.formats.chat_tokens import chat_ids, prompt_ids
from yanmo.formats.records import DOCUMENTS_WITH_TURNS, num_characters, write_parquet
from yanmo.stage.run import main
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.tokenize.segmenter import Marks, Segmenter, encode


@pytest.fixture(scope="module")
def tokenizer(chat_tokenizer):
    found = Tokenizer.from_file(str(chat_tokenizer))
    found.encode_special_tokens = True
    return found


def test_a_span_that_carries_no_loss_does_not_count():
    turns = turns_of(chat_row(CHAT, silent=("把酒问青天。",)))
    assert [turn.is_answer for turn in turns] == [False, False, False, True]
    row = chat_row(CHAT)
    assert [t.is_answer for t in turns_of({**row, "loss_spans": None})] == [False, True, False, True]
    assert turns_of({**row, "turns": None}) == ()
    assert Document("1", "chat", "s", row["text"], turns=turns).characters == num_characters("不知天上宫阙。")


def test_counted_tokens_are_the_answers_and_what_ends_them(tokenizer):
    ids, counted = chat_ids(tokenizer, turns_of(chat_row(CHAT)), bos=0)
    shown = [tokenizer.id_to_token(i) for i, c in zip(ids, counted, strict=True) if c]
    assert "".join(shown) == "把酒问青天。<|im_end|>不知天上宫阙。<|im_end|>"
    whole = "".join(tokenizer.id_to_token(i) for i in ids)
    assert whole.startswith("<|bos|><|im_start|>user\n明月几时有<|im_end|>\n<|im_start|>assistant\n把酒")


def test_ids_and_counted_tokens_are_those_of_the_tokenize_stage(chat_tokenizer, tokenizer):
    rows = [chat_row(CHAT), chat_row([("system", "明"), *CHAT, ("user", "Hi 😀"), ("assistant", "鬱\n明月")])]
    fields = [DOCUMENTS_WITH_TURNS.field(name) for name in ("text", "turns", "loss_spans")]
    kept = [{field.name: row[field.name] for field in fields} for row in rows]
    marks = Marks(0, 1, *(tokenizer.token_to_id(f"<|im_{name}|>") for name in ("start", "end")))
    found = encode(
        Segmenter.read(chat_tokenizer), pa.RecordBatch.from_pylist(kept, schema=pa.schema(fields)), marks
    )
    for i, row in enumerate(rows):
        ids, counted = chat_ids(tokenizer, turns_of(row), bos=0)
        assert [*ids, 1] == found.ids[found.offsets[i] : found.offsets[i + 1]].tolist()
        spans = {t for begin, end in found.loss_spans[i] for t in range(begin, end)}
        assert {t for t, counts in enumerate(counted) if counts} == spans


def test_a_prompt_is_what_stands_before_an_answer(tokenizer):
    turns = turns_of(chat_row(CHAT))
    ids, counted = chat_ids(tokenizer, turns, bos=0)
    prompt = prompt_ids(tokenizer, turns[:1], bos=0)
    assert prompt == ids[: counted.index(True)]


def test_a_tokenizer_without_marks_is_refused(tmp_path):
    make_tokenizer(tmp_path / "tokenizer.json")
    plain = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match=r"has no .*im_start"):
        chat_ids(plain, turns_of(chat_row(CHAT)), bos=0)


def test_only_answers_are_charged(ground, chat_model):
    loaded = load_model(chat_model)
    turns = turns_of(chat_row(CHAT))
    ids, counted = chat_ids(loaded.tokenizer, turns, bos=0)
    document = Document("1", "chat", "s", "", turns=turns)
    scores = score(loaded, [document, Document("2", "诗", "s", HAN)], with_tag=True, workers=1, stride=1)
    bits, full = 0.0, [*ids, 1]
    for t, counts in enumerate(counted):
        with torch.no_grad():
            logits = loaded.model(torch.tensor([full[max(0, t - 16) : t]]))[0, -1] if counts else None
        if logits is not None:
            bits -= float(torch.log_softmax(logits.double(), -1)[full[t]]) / np.log(2)
    assert scores.bits[0] == pytest.approx(bits, abs=1e-3)
    assert scores.tokens[0] == sum(counted)


def test_chats_and_plain_text_stand_in_one_evaluation_set(ground, chat_model):
    rows = [chat_row(CHAT), chat_row(CHAT[:2]), *(make_row("诗", "test", i, turns=None) for i in range(3))]
    body = pa.Table.from_pylist(rows, schema=DOCUMENTS_WITH_TURNS)
    files = {"test-00000-of-00001.parquet": lambda path: write_parquet(body, path)}
    documents = read_split(commit(ground.store, "evaluation_set", files, options={"n": 9}), "test")
    assert [bool(d.turns) for d in documents] == [False, False, False, True, True]
    scores = score(load_model(chat_model), documents, with_tag=True, workers=1)
    assert np.isfinite(scores.bits).all()
    assert sorted(scores.tokens[3:].tolist()) == [7, 7 + 8]


FORM = "请把下面这段文字翻译成现代汉语，不要遗漏，只回答译文："


def test_the_words_of_a_question_make_no_contamination(ground):
    """All chats of a template share them; what was learned by heart is an answer."""
    held = [chat_row([("user", FORM + "甲"), ("assistant", said)]) for said in (HAN[:20], HAN[20:40])]
    scored = [Document(str(i), "chat", "s", row["text"], turns=turns_of(row)) for i, row in enumerate(held)]
    train = make_row("chat", "train", 0, text=f"{FORM}乙\n{HAN[20:40]}")
    train = {name: value for name, value in train.items() if name != "turns"}
    text = commit(
        ground.store, "curate", {"train-00000-of-00001.parquet": parquet([train])}, options={"n": 8}
    )
    found = contamination(scored, [text])
    assert found["share"] == 0.5 and found["genres"]["chat"]["with_a_fifth_shared"] == 1


def test_an_evaluation_set_of_chats_alone_is_looked_for_in_the_training_text_too(ground, chat_model):
    """Without that a chat model is promoted unseen: there are no baselines, but there may be copies."""
    learned = make_row("诗", "train", 0)["text"]
    said = (learned, "不知天上宫阙。")
    rows = [chat_row([("user", FORM), ("assistant", answer)], title=str(i)) for i, answer in enumerate(said)]
    body = pa.Table.from_pylist(rows, schema=DOCUMENTS_WITH_TURNS)
    files = {
        f"{split}-00000-of-00001.parquet": lambda path: write_parquet(body, path)
        for split in ("test", "valid")
    }
    commit(ground.store, "evaluation_set", files, options={"n": 10})
    argv = ground.arguments("--samples", "1")
    assert main(STAGE, STEPS, argv) == 0
    assert read_pointer(ground.store, "dev", "baselines") is None
    evaluation = open_reference(ground.store, read_pointer(ground.store, "dev", "evaluate"))
    found = read(evaluation.part("contamination"), "contamination.json")
    assert (found["genres"]["chat"]["with_a_shared_run"], found["genres"]["chat"]["too_short"]) == (1, 1)
    assert found["share"] == 1.0, "of those long enough to be found"
