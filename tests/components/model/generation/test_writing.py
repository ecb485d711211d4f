"""A text is the same alone and among others, ends where it should, and is what transformers writes."""

import pytest
import torch
from tiny_decoder import decoder, prompts, text

from yanmo.model.generation.choosing import Choice
from yanmo.model.generation.writer import Writer
from yanmo.model.generation.writing import LENGTH, STOP, write
from yanmo.model.hf_export import Symbols, save

GREEDY = Choice(temperature=0)
DRAWN = Choice(temperature=0.9, top_p=0.95, top_k=40, repetition_penalty=1.1)


@pytest.fixture(scope="module")
def writer():
    return Writer(decoder())


def written(writer, texts, choice=GREEDY, at_once=16, **how):
    for _ in write(writer, texts, choice, at_once=at_once, **how):
        pass
    return [(each.new, each.finish) for each in texts]


@pytest.mark.parametrize("choice", [GREEDY, DRAWN])
def test_a_text_is_the_same_alone_and_among_others(writer, choice):
    starts = prompts(30, 30)
    starts[:3] = [[5, 6, 7], [8, 9], [4, 3, 2, 9]]  # read together, the shortest first
    starts[4] = starts[9] = starts[17] = [*range(2, 30)]  # a long prompt of several

    def texts():
        return [text(p, seed=i, most=1 + i % 17) for i, p in enumerate(starts)]

    alone = [written(writer, [each], choice)[0] for each in texts()]
    for at_once in (1, 3, 8, 40):
        assert written(writer, texts(), choice, at_once) == alone
        assert written(writer, texts(), choice, at_once, shares=True) == alone
    assert {finish for _, finish in alone} == {STOP, LENGTH}


@pytest.mark.long
def test_the_likeliest_tokens_are_those_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = decoder()
    save(model, Symbols(bos=0, eos=1, pad=2), tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    starts = prompts(12, 20, seed=1)
    found = written(Writer(model), [text(p, most=40) for p in starts], at_once=5)
    penalized = written(
        Writer(model), [text(p, most=40) for p in starts], Choice(temperature=0, repetition_penalty=1.3)
    )
    for prompt, (new, _), (other, _) in zip(starts, found, penalized, strict=True):
        ids = torch.tensor([prompt])
        for penalty, ours in ((1.0, new), (1.3, other)):
            whole = theirs.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=40,
                do_sample=False,
                temperature=None,
                top_p=None,
                repetition_penalty=penalty,
            )[0, len(prompt) :].tolist()
            assert ours == (whole[: whole.index(1)] if 1 in whole else whole)
    assert found != penalized


def test_what_is_yielded_is_what_was_written_at(writer):
    texts = [text([5, 6], seed=1, most=3), text([7], seed=2, most=9, ends=())]
    lengths, steps = [0, 0], 0
    for live in write(writer, texts, GREEDY, at_once=2):
        steps += 1
        for i, each in enumerate(texts):
            assert each in live or lengths[i] == len(each.new)
            lengths[i] = len(each.new)
    assert steps == 9 and len(texts[1].new) == 9


def test_whoever_reads_along_may_end_a_text(writer):
    texts = [text([5, 6], most=20, ends=()), text([7], most=20, ends=())]
    for live in write(writer, texts, GREEDY, at_once=2):
        for each in live:
            if each is texts[0] and len(each.new) == 4:
                each.finish = STOP
    assert [len(each.new) for each in texts] == [4, 20] and texts[0].finish == STOP


def test_the_next_text_is_asked_for_when_a_row_is_free(writer):
    asked = []

    def source():
        for i in range(6):
            asked.append(i)
            yield text([4 + i], most=2 + i, ends=())

    counts = [len(asked) for _ in write(writer, source(), GREEDY, at_once=2)]
    assert counts[0] == 2 and counts == sorted(counts) and counts[-1] == 6


def read_anew(model, prompt, steps):
    """The likeliest tokens, every step reading the whole window: the rule that kept keys must obey."""
    ids, begin, context = list(prompt), 0, model.config.max_position_embeddings
    for _ in range(steps):
        if len(ids) - begin > context:
            begin = len(ids) - context // 2
        ids.append(int(model(torch.tensor([ids[begin:]]))[0, -1].argmax()))
    return ids[len(prompt) :]


def test_texts_of_different_lengths_slide_each_by_itself():
    model = decoder(context=8)
    starts = [*prompts(6, 7, seed=2), list(range(2, 20))]
    found = written(Writer(model), [text(p, most=25, ends=()) for p in starts], at_once=4, slides=True)
    with torch.no_grad():
        assert [new for new, _ in found] == [read_anew(model, p, 25) for p in starts]


def test_a_text_that_does_not_slide_ends_with_the_context(writer):
    (short, why), (full, _) = written(
        writer, [text([4] * 60, most=99, ends=()), text([4] * 63, most=99, ends=())]
    )
    assert (len(short), why, len(full)) == (4, LENGTH, 1)


@pytest.mark.parametrize(("prompt", "message"), [([], "at least one token"), ([4] * 64, "context of 64")])
def test_a_prompt_that_cannot_be_read_is_refused(writer, prompt, message):
    with pytest.raises(ValueError, match=message):
        written(writer, [text(prompt)])


def test_no_tokens_are_written_where_none_are_wanted(writer):
    assert written(writer, [text([4], most=0), text([4], most=2, ends=())])[0] == ([], LENGTH)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_writes_the_texts_of_the_cpu():
    here = decoder()
    there = Writer(decoder().to("cuda"))
    for choice in (GREEDY, DRAWN):
        texts = [[text(p, seed=i) for i, p in enumerate(prompts(9, 20))] for _ in range(2)]
        assert written(there, texts[0], choice, 4) == written(Writer(here), texts[1], choice, 4)
