"""What may come next: against every token tried one by one, and in poems drawn from it at random."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from verse_judge import passes

from yanmo.verse.forms import REGULAR, tunes
from yanmo.verse.poems import read_poem
from yanmo.verse.sound import OF_REGULAR
from yanmo.verse.verse_form import VerseForm

sys.path.insert(0, str(Path(__file__).parents[1] / "tools/generate"))

from saying import random_model, tokenizer_text

EOS = 1


def tokenizer() -> Tokenizer:
    return Tokenizer.from_str(tokenizer_text())


def next_ids(form: VerseForm, ids: list[int], size: int) -> list[int]:
    return form.allowed([ids], size)[0].nonzero()[:, 0].tolist()


def drawn(form: VerseForm, size: int, draw: random.Random) -> list[int]:
    ids = [0]
    while (token := draw.choice(next_ids(form, ids, size))) != EOS:
        ids.append(token)
    assert next_ids(form, ids, size) == [EOS] and form.lines_left(ids) == 0
    return ids


@pytest.mark.parametrize("name", [*REGULAR, "菩萨蛮", "水调歌头"])
def test_whatever_is_drawn_is_a_poem_of_the_form(name):
    own, draw = tokenizer(), random.Random(1)
    for tone in ("strict", "loose", "free"):
        form = VerseForm(own, name, tone=tone, ends=[EOS])
        texts = [own.decode(drawn(form, own.get_vocab_size(), draw)) for _ in range(2)]
        for text in texts:
            poem = read_poem(text)
            assert poem.shape == form.form.shape and (tone != "strict" or passes(text, form.form)), text
            if name in REGULAR:
                rules = {rule: OF_REGULAR[rule](poem) for rule in OF_REGULAR}
                assert rules["whole_rhyme"] == (1, 1)
                if tone != "free":
                    assert rules["alternation"] == (len(poem.lines),) * 2, "no line is out of the count"
                    assert rules["opposition"] == (len(poem.lines) // 2,) * 2
                    assert rules["adhesion"] == (len(poem.lines) // 2 - 1,) * 2
            ends = [line[-1] for line in poem.lines[1::2]]
            assert name not in REGULAR or len(set(ends)) == len(ends), "none rhymes twice"


def test_the_mask_is_what_trying_each_token_gives():
    own, draw = tokenizer(), random.Random(2)
    size = own.get_vocab_size()
    form = VerseForm(own, "七绝", rhyme="庚", ends=[EOS])
    ids = drawn(form, size, draw)
    for n in range(1, len(ids)):
        whole = [i for i in range(size) if "\ufffd" not in own.decode([i]) and i not in form._pieces.marks]
        tried = []
        for token in whole:
            try:
                form.lines_left([*ids[:n], token])
            except ValueError:
                continue
            tried.append(token)
        if "\ufffd" not in own.decode(ids[:n]):  # within a character only bytes may come
            assert set(next_ids(form, ids[:n], size)) & set(whole) == set(tried), own.decode(ids[:n])


def test_tokens_of_several_characters_end_no_line_but_their_own(tmp_path):
    import json

    value = json.loads(tokenizer_text())
    words = ["春眠", "不觉晓", "闻啼鸟，", "风雨声。\n", "来，春", "春来风雨声", "。\n"]
    value["model"]["vocab"] += [[word, -3.0] for word in words]
    own = Tokenizer.from_str(json.dumps(value))
    form = VerseForm(own, "五绝", ends=[EOS])
    size, draw = own.get_vocab_size(), random.Random(3)
    may = {own.id_to_token(i) for i in next_ids(form, own.encode("春眠").ids, size)}
    assert {"不觉晓", "闻"} <= may and "春来风雨声" not in may
    seen = set()
    for _ in range(60):
        ids = drawn(form, size, draw)
        assert passes(own.decode(ids), form.form)
        seen |= {own.id_to_token(i) for i in ids}
    assert {"春眠", "不觉晓", "风雨声。\n", "。\n"} <= seen and "来，春" not in seen


def test_transformers_writes_under_the_same_masks_as_yanmo(tmp_path):
    transformers = pytest.importorskip("transformers")
    from yanmo.model.generation.choosing import Choice, own_draws
    from yanmo.model.generation.writer import Writer
    from yanmo.model.generation.writing import Text, write
    from yanmo.model.hf_export import load

    folder = random_model(tmp_path / "m", max_position_embeddings=256)
    own = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|eos|>", pad_token="<|pad|>"
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    prompts = [[0, 2, *own("春").input_ids], [0, *own("不觉").input_ids]]
    form = VerseForm(own, "七绝")
    texts = [Text(prompt, own_draws(0, 0), frozenset([EOS]), 999, form=form) for prompt in prompts]
    list(write(Writer(load(folder).model), texts, Choice(temperature=0), at_once=2))
    for prompt, text in zip(prompts, texts, strict=True):
        ids = torch.tensor([prompt])
        found = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=200,
            logits_processor=[form],
        )
        assert found[0].tolist() == [*prompt, *text.new, EOS]
        assert passes(own.decode(found[0], skip_special_tokens=True), form.form)
    question = torch.tensor([[*prompts[0], 300]])
    behind = VerseForm(own, "五绝", begins_at=question.shape[1])
    answer = model.generate(
        question,
        attention_mask=torch.ones_like(question),
        do_sample=True,
        num_return_sequences=3,
        max_new_tokens=200,
        logits_processor=[behind],
    )
    decoded = own.batch_decode(answer[:, question.shape[1] :], skip_special_tokens=True)
    assert all(passes(text, behind.form) for text in decoded)


def test_a_tokenizer_that_cannot_write_the_form_is_refused():
    import json

    value = json.loads(tokenizer_text())
    value["decoder"], value["model"]["byte_fallback"] = None, False
    value["model"]["vocab"] = [v for v in value["model"]["vocab"] if not v[0].startswith("<0x")]
    with pytest.raises(ValueError, match="choose another --rhyme"):
        VerseForm(Tokenizer.from_str(json.dumps(value)), "七律", ends=[EOS])


def test_a_text_that_does_not_fit_is_told_where():
    own = tokenizer()
    with pytest.raises(ValueError, match="'晓' does not fit 五绝 at line 1, character 4"):
        VerseForm(own, "五绝", ends=[EOS]).lines_left(own.encode("春晓觉晓").ids)
    assert len(tunes()) > 50
