import math

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from yanmo.common.errors import DataError
from yanmo.evaluate.document_bits import load_model, score
from yanmo.evaluate.documents.reading import Document, read_split
from yanmo.evaluate.writing.samples import SampleOptions, distinct_pairs, text_of, write_samples
from yanmo.model.scoring import token_bits


@pytest.fixture
def loaded(ground):
    return load_model(ground.model)


def by_hand(loaded, ids, first):
    """Bits of the tokens from `first` on, one full forward, no windows: the text fits the context."""
    with torch.no_grad():
        logits = loaded.model(torch.tensor([ids]))[0].double()
    nats = -torch.log_softmax(logits, -1)
    return sum(float(nats[i - 1, ids[i]]) for i in range(first, len(ids))) / math.log(2)


def test_bits_of_a_short_document_are_those_of_one_forward(loaded):
    document = Document("1", "词", "s", "明月\n几时有。")
    ids = loaded.encode([document.text])[0]
    assert ids[0] == 0 and ids[-1] == 1
    scores = score(loaded, [document], with_tag=True, workers=1)
    assert scores.tokens.tolist() == [len(ids) - 1]
    assert scores.bits[0] == pytest.approx(by_hand(loaded, ids, 1), abs=1e-3)
    tagged = [0, 5, *ids[1:]]  # the tag itself is not charged
    assert scores.bits_with_tag[0] == pytest.approx(by_hand(loaded, tagged, 2), abs=1e-3)


def test_the_tag_changes_the_first_window_alone(loaded):
    # 30 characters, context 16: targets 1 to 15 stand behind the tag, the others as without it
    document = Document("1", "诗", "s", "明月几时有把酒问青天不知天上宫阙今夕是何年我欲乘风归去又恐")
    plain = np.array(loaded.encode([document.text])[0])
    bits = token_bits(loaded.model, [plain])[0]
    head = by_hand(loaded, [0, 4, *plain[1:16].tolist()], 2)
    scores = score(loaded, [document], with_tag=True, workers=1)
    assert scores.bits[0] == pytest.approx(bits.sum(), abs=1e-3)
    assert scores.bits_with_tag[0] == pytest.approx(head + bits[15:].sum(), abs=1e-3)


def test_every_number_of_workers_gives_the_same_figures(loaded, ground):
    documents = read_split(ground.evaluation_set, "test")
    alone, three = (score(loaded, documents, with_tag=True, workers=n) for n in (1, 3))
    np.testing.assert_array_equal(alone.bits, three.bits)
    np.testing.assert_array_equal(alone.bits_with_tag, three.bits_with_tag)


def test_bits_do_not_depend_on_the_tokenization(loaded):
    # A text of unknown characters becomes bytes: more tokens, all charged, the same divisor.
    known, unknown = Document("1", "诗", "s", "明月青天"), Document("2", "诗", "s", "鬱鬱靈龜")
    scores = score(loaded, [known, unknown], with_tag=False, workers=1)
    assert scores.tokens.tolist() == [4, 13]
    assert known.characters == unknown.characters == 4
    assert scores.bits_with_tag is None


def test_a_tag_written_in_a_text_is_text(loaded):
    ids = loaded.encode(["<|tag_01|>明<|eos|>"])[0]
    assert not set(ids[1:-1]) & set(range(68))


def test_a_genre_the_model_never_saw_is_scored_without_tag(loaded):
    scores = score(loaded, [Document("1", "曲", "s", "明月")], with_tag=True, workers=1)
    assert np.isfinite(scores.bits).all()
    assert np.isnan(scores.bits_with_tag).all()


def test_a_model_that_diverged_is_refused(loaded):
    with torch.no_grad():
        loaded.model.lm_head.weight[:] = float("nan")
    with pytest.raises(DataError, match="training diverged"):
        score(loaded, [Document("1", "诗", "s", "明月")], with_tag=False, workers=1)


def settings(**changes):
    chosen = {"number": 3, "most_tokens": 8, "temperature": 1.0, "top_p": 1.0, "seed": 0, **changes}
    return SampleOptions(**chosen)


def test_samples_are_chosen_by_seed_alone(loaded):
    first = write_samples(loaded, ["诗", "曲"], settings())
    assert first == write_samples(loaded, ["诗", "曲"], settings(), workers=2)
    assert first["genres"] != write_samples(loaded, ["诗", "曲"], settings(seed=1))["genres"]
    assert first["genres"]["曲"] == write_samples(loaded, ["曲"], settings())["genres"]["曲"]
    assert [len(texts) for texts in first["genres"].values()] == [3, 3]


def test_samples_hold_neither_control_tokens_nor_halves_of_characters(loaded):
    with torch.no_grad():  # a model that wants nothing but tags and bytes: others have small logits
        loaded.model.lm_head.weight[324:] *= 0.01
        loaded.model.lm_head.weight[1] *= 0.01
    texts = write_samples(loaded, ["诗"], settings(number=20, most_tokens=20))["genres"]["诗"]
    written = "".join(sample["text"] for sample in texts)
    assert len(written) > 100
    assert any(sample["tokens"] == 20 for sample in texts), "some are cut"
    assert all(sample["ended"] == (sample["tokens"] < 20) for sample in texts)
    assert not {"\ufffd"} & set(written) and "<|" not in written and "<unk>" not in written


def test_distinct_pairs_show_a_loop():
    assert distinct_pairs("明月明月明月") == 0.4
    assert distinct_pairs("明月青天") == 1.0
    assert distinct_pairs("明") is None


def test_a_text_that_is_cut_inside_a_character_ends_before_it():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    ids = tokenizer.encode("明月").ids
    assert len(ids) == 6 and text_of(tokenizer, ids, ended=False) == "明月"
    assert text_of(tokenizer, ids[:5], ended=False) == "明"
    assert text_of(tokenizer, ids[:5], ended=True) == "明\ufffd"
