"""What validation counts."""

import copy

import numpy as np
import pytest

from yanmo.common.errors import DataError
from yanmo.train.validate import Validation, counted_bits


def test_bits_of_a_chat_are_those_of_its_answers():
    bits = 2.0 ** np.arange(9)  # of tokens 1 to 9
    assert counted_bits(bits, None) == 511
    assert counted_bits(bits, [[2, 4], [9, 10]]) == 2 + 4 + 256
    assert counted_bits(bits, []) == 0


def test_chosen_documents_keep_their_spans(cache):
    index, changed = cache.split("valid"), copy.copy(cache)
    index.loss_spans[1] = [[3, 6]]
    changed.split = lambda name: index
    found = Validation.choose(changed, 10_000)
    assert [spans for spans in found.spans if spans] == [[[3, 6]]]
    where = next(i for i, spans in enumerate(found.spans) if spans)
    assert len(found.documents[where]) == index.length[1]


def test_where_answers_decide_only_chats_are_chosen(cache):
    index, changed = cache.split("valid"), copy.copy(cache)
    changed.split = lambda name: index
    index.loss_spans.clear()
    with pytest.raises(DataError, match=r"expected chats among the \d+ held-out documents"):
        Validation.choose(changed, 10_000, "answers")
    assert Validation.choose(changed, 0, "answers").documents == []
    index.loss_spans.update({1: [[3, 6]], 3: [[2, 4]]})
    found = Validation.choose(changed, 10_000, "answers")
    assert found.spans == [[[3, 6]], [[2, 4]]]
    assert [len(document) for document in found.documents] == index.length[[1, 3]].tolist()


@pytest.mark.usefixtures("one_rank")
def test_a_long_validation_gives_signs_of_life(cache, tiny):
    from yanmo.model.decoder import Decoder
    from yanmo.train.backends.plain import open_engine
    from yanmo.train.config import TrainConfig
    from yanmo.train.models.decoders import decoder_config

    options = TrainConfig(**{**tiny, "backend": "torch", "valid_characters": 10_000})
    engine = open_engine(Decoder(decoder_config(options, cache.vocab_size)), options, "cpu")
    validation, beats = Validation.choose(cache, options.valid_characters), []
    found = validation.bits_per_character(engine, lambda: beats.append(1))
    assert len(beats) >= sum(len(d) for d in validation.documents) // 1024 > 1
    assert found == validation.bits_per_character(engine)
