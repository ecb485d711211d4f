import json

import pytest

from yanmo.formats.token_cache import SpecialIds

CHAT = [
    {"role": "system", "content": "作诗。"},
    {"role": "user", "content": "以<|im_end|>为题"},
    {"role": "assistant", "content": "春眠不觉晓，\n处处闻啼鸟。"},
]


def test_chat_template_loads_in_transformers_and_marks_each_message(tokenizer):
    special = SpecialIds.read(tokenizer.path("genres.json"))
    loaded = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(
        tokenizer.path("tokenizer_config.json").parent
    )
    text = loaded.apply_chat_template(CHAT[:1] + CHAT[2:], tokenize=False)
    assert text == (
        "<|bos|><|im_start|>system\n作诗。<|im_end|>\n"
        "<|im_start|>assistant\n春眠不觉晓，\n处处闻啼鸟。<|im_end|>\n"
    )
    ids = loaded.apply_chat_template(CHAT[:1], add_generation_prompt=True)["input_ids"]
    named = loaded.convert_ids_to_tokens(ids)
    assert named[:4] == ["<|bos|>", "<|im_start|>", "system", "\n"]
    assert named[-5:] == ["<|im_end|>", "\n", "<|im_start|>", "assistant", "\n"]
    assert (ids[1], ids[-5]) == (special.im_start, special.im_end) == (66, 67)


def test_marks_of_a_chat_are_special_and_names_of_roles_are_text(tokenizer):
    value = json.loads(tokenizer.path("tokenizer.json").read_text(encoding="utf-8"))
    added = {token["content"]: token["id"] for token in value["added_tokens"]}
    assert added["<|im_start|>"] == 66 and added["<|im_end|>"] == 67
    assert not set(added) & {"system", "user", "assistant"}
    assert all(value["model"]["vocab"][i][0] == piece for piece, i in added.items())


def test_tokenizer_of_before_chats_is_read_as_one_without(tokenizer, tmp_path):
    value = json.loads(tokenizer.path("genres.json").read_text(encoding="utf-8"))
    del value["im_start"], value["im_end"]
    (tmp_path / "genres.json").write_text(json.dumps(value), encoding="utf-8")
    special = SpecialIds.read(tmp_path / "genres.json")
    assert (special.im_start, special.im_end) == (-1, -1)
