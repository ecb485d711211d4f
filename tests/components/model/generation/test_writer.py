"""Kept keys and values give the logits of the whole text: token by token, in rows of different lengths."""

import copy

import pytest
import torch
from tiny_decoder import decoder, prompts

from yanmo.model.generation.writer import Writer

CLOSE = {"rtol": 0, "atol": 1e-5}
"""Sums of 48 products in another order; logits are of the size of 10."""


def whole(model, ids):
    """The logits after the last token, reading all of them."""
    with torch.no_grad():
        return model(torch.tensor([ids]))[0, -1]


@pytest.mark.parametrize("shape", [{}, {"num_key_value_heads": 4}, {"tie_word_embeddings": True}])
def test_every_step_has_the_logits_of_the_whole_text(shape):
    model = decoder(**shape)
    writer, texts = Writer(copy.deepcopy(model)), prompts(5, 20)
    kept, new = writer.room(5), texts
    for _ in range(12):
        logits = writer.read(kept, range(5), new)
        for row, ids in enumerate(texts):
            torch.testing.assert_close(logits[row], whole(model, ids), **CLOSE)
        new = [[int(row.argmax())] for row in logits]
        texts = [[*ids, *step] for ids, step in zip(texts, new, strict=True)]


def test_rows_are_given_to_other_texts_kept_and_copied():
    model = decoder()
    writer, texts = Writer(copy.deepcopy(model)), prompts(4, 20)
    kept = writer.room(4)
    writer.read(kept, range(4), texts)
    kept.lengths[1] = kept.lengths[3] = 0
    texts[1], texts[3] = [7] * 30, [5]
    writer.read(kept, [1, 3], [texts[1], texts[3]])
    kept.keep([3, 1, 0])
    kept.copy_row(1, 0)
    texts = [[*ids, 9] for ids in (texts[1], texts[1], texts[0])]
    logits = writer.read(kept, range(3), [[9]] * 3)
    for row, ids in enumerate(texts):
        torch.testing.assert_close(logits[row], whole(model, ids), **CLOSE)


def test_a_text_goes_on_from_what_its_row_holds():
    model, ids = decoder(), prompts(1, 40, seed=4)[0] * 2
    writer = Writer(copy.deepcopy(model))
    kept = writer.room(1)
    writer.read(kept, [0], [ids[:5]])
    kept.lengths[0] = 3  # the last two are others now
    logits = writer.read(kept, [0], [ids[3:]])
    torch.testing.assert_close(logits[0], whole(model, ids), **CLOSE)


def test_the_context_can_be_filled_to_its_last_place():
    model = decoder(context=16)
    writer = Writer(copy.deepcopy(model))
    kept, ids = writer.room(2), [list(range(2, 17)), [4]]
    writer.read(kept, range(2), ids)
    logits = writer.read(kept, range(2), [[8], [8]])
    for row, before in enumerate(ids):
        torch.testing.assert_close(logits[row], whole(model, [*before, 8]), **CLOSE)


def test_weights_in_16_bits_give_nearly_the_same():
    model = decoder()
    exact, ids = whole(model, [3, 4, 5]), [[3, 4, 5]]
    writer = Writer(model.to(torch.bfloat16))
    logits = writer.read(writer.room(1), [0], ids)
    assert logits.dtype == torch.float32
    # bf16 keeps 8 bits of a number; two layers and a head multiply that error a few times.
    torch.testing.assert_close(logits[0], exact, rtol=0.1, atol=0.1 * float(exact.abs().max()))
