"""Chats, a tokenizer with their marks, and a small model that reads them."""

import torch
from tiny_store import GENRES, commit, copied, make_row, make_tokenizer
from tokenizers import Tokenizer

from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.hf_export import Symbols, save

CHAT = [
    ("user", "明月几时有"),
    ("assistant", "把酒问青天。"),
    ("user", "又\n来"),
    ("assistant", "不知天上宫阙。"),
]


def chat_row(turns, silent=(), **changes):
    found, spans, at = [], [], 0
    for role, text in turns:
        found.append({"role": role, "begin": at, "end": at + len(text)})
        if role == "assistant" and text not in silent:
            spans.append([at, at + len(text)])
        at += len(text) + 1
    text = "\n".join(text for _, text in turns)
    return make_row("chat", "test", 0, text=text, turns=found, loss_spans=spans, **changes)


def make_chat_tokenizer(path):
    """A tokenizer with marks."""
    make_tokenizer(path)
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(path))
    return path


def commit_chat_model(store, path, folder):
    """A random model with the tokenizer at `path`, as the latest output of train."""
    size = Tokenizer.from_file(str(path)).get_vocab_size()
    config = DecoderConfig(
        vocab_size=size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    torch.manual_seed(3)
    symbols = Symbols(bos=0, eos=1, pad=2, genres=GENRES, tag_ids=(4, 5, 6, 7))
    names = [path.name, *save(Decoder(config), symbols, folder, [path])]
    return commit(store, "train", copied(folder, sorted(set(names))), options={"chat": 1})
