"""A model of `yanmo train` as a GGUF file, which llama.cpp and Ollama read.

llama.cpp's converter takes a Unigram tokenizer for SentencePiece's "llama", which joins the best pair of
neighbours again and again: another cut of one text in forty. Its search for the likeliest cut, which spells
by bytes what has no piece, is the one that it calls "plamo2", and a model of any kind may name that. It
counts scores in ten thousandths, so they are stretched; where two cuts are equally likely (AAA as A, AA or
AA, A) it takes the longer piece first, as jieba does, and tokenizers the shorter one. It puts no `<|bos|>`
before a text: the chat template does, and whoever sends a text without it writes the mark.

The format: docs/gguf.md of ggml, version 3, written here without the package gguf, which would be one more in
the image for these lines. Models and tokenizers of others are llama.cpp's converter's business.
"""

from __future__ import annotations

import json
import math
import re
import struct
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from yanmo.common.errors import UsageError, naming
from yanmo.common.given_file import read_object
from yanmo.formats.chat_tokens import END
from yanmo.model.decoder import DecoderConfig
from yanmo.model.weights_check import StoredTensor, read_headers
from yanmo.tools.export.contents import Source, generation_settings, marks_that_end

STRETCH = 8.0
"""Of scores, a power of two. A character without a piece costs 1,000, seven times a piece's least (-18)."""
_NEVER = -10_000.0
"""Score of what no text becomes: llama.cpp searches above -2,000 only."""
_NORMAL, _UNKNOWN, _CONTROL, _UNUSED, _BYTE = 1, 2, 3, 5, 6
_FP32, _BF16 = 0, 30
_FILE_TYPES = {"fp32": 0, "bf16": 32}
_ALIGNED = 32
_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_OF_A_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    "self_attn.o_proj": "attn_output",
    **{f"self_attn.{part}_norm": f"attn_{part}_norm" for part in "qk"},
    **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
}


_MODELFILE = """\
FROM ./model.gguf
TEMPLATE \"\"\"{bos}{{{{ range .Messages }}}}<|im_start|>{{{{ .Role }}}}
{{{{ .Content }}}}<|im_end|>
{{{{ end }}}}<|im_start|>assistant
\"\"\"
"""


def modelfile(source: Source) -> str:
    """The text of a Modelfile, by which Ollama makes a model of `model.gguf`."""
    settings = generation_settings(source)
    names = ("temperature", "top_p")
    given: dict[str, Any] = {name: settings[name] for name in names if name in settings}
    given["num_ctx"] = source.config.max_position_embeddings
    ends = [f'stop "{source.tokenizer.id_to_token(end)}"' for end in marks_that_end(source)]
    lines = [f"PARAMETER {line}\n" for line in (*(f"{name} {value}" for name, value in given.items()), *ends)]
    return _MODELFILE.format(bos=source.tokenizer.id_to_token(source.symbols.bos)) + "".join(lines)


def write_gguf(source: Source, path: Path, name: str, dtype: str) -> None:
    """Write the weights (matrices in `dtype`, norms in fp32), the tokenizer and how texts are chosen.

    Args:
        source: the model, checked.
        name: of the model.

    Raises:
        UsageError: the model or its tokenizer is of another kind than `yanmo train` makes.
        OSError: the disk is full, among others.
    """
    tokenizer = json.loads((source.folder / "tokenizer.json").read_text(encoding="utf-8"))
    config, model = source.config, tokenizer["model"]
    if config.model_type != "qwen3" or model.get("type") != "Unigram" or not source.is_ours:
        raise UsageError(
            f"--for llama.cpp: {source.folder} is no model of `yanmo train` with a tokenizer of `yanmo "
            "tokenize`; export it --for transformers and convert that by llama.cpp's convert_hf_to_gguf.py"
        )
    stored = read_headers(source.folder)
    if config.tie_word_embeddings:
        stored.pop("lm_head.weight", None)
    settings = generation_settings(source)
    values = {**_shape(config, name, dtype), **_vocabulary(source, tokenizer), **_sampling(settings)}
    with naming(path), path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(stored), len(values)))
        file.write(b"".join(_text(key) + _value(value) for key, value in values.items()))
        begin = 0
        for key in sorted(stored):
            shape, kind, size = _laid_out(stored[key], dtype)
            file.write(_text(_named(key)) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape)))
            file.write(struct.pack("<IQ", kind, begin))
            begin += size + -size % _ALIGNED
        for key in sorted(stored):
            file.write(bytes(-file.tell() % _ALIGNED))
            with safe_open(stored[key].file, framework="pt") as weights:
                tensor = weights.get_tensor(key)
            is_bf16 = _laid_out(stored[key], dtype)[1] == _BF16
            tensor = tensor.bfloat16().view(torch.int16) if is_bf16 else tensor.float()
            file.write(tensor.contiguous().numpy().tobytes())
        file.write(bytes(-file.tell() % _ALIGNED))


def _shape(config: DecoderConfig, name: str, dtype: str) -> dict[str, Any]:
    kind = config.model_type
    of_kind = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.freq_base": float(config.rope_theta),
    }
    general = {"architecture": kind, "name": name, "file_type": _FILE_TYPES[dtype]}
    return {f"general.{key}": each for key, each in general.items()} | {
        f"{kind}.{key}": each for key, each in of_kind.items()
    }


def _vocabulary(source: Source, tokenizer: dict[str, Any]) -> dict[str, Any]:
    marks = {added["id"] for added in tokenizer["added_tokens"] if added["special"]}
    pieces = [(str(piece), float(score)) for piece, score in tokenizer["model"]["vocab"]]
    pieces += [(f"[PAD{i}]", _NEVER) for i in range(len(pieces), source.config.vocab_size)]
    kinds = [_kind(i, piece, source, marks) for i, (piece, _) in enumerate(pieces)]
    scores = [s * STRETCH if kind == _NORMAL else _NEVER for (_, s), kind in zip(pieces, kinds, strict=True)]
    symbols = source.symbols
    found = {
        "model": "plamo2",
        "pre": "default",
        "tokens": [piece for piece, _ in pieces],
        "scores": scores,
        "token_type": kinds,
        "bos_token_id": symbols.bos,
        "eos_token_id": symbols.eos,
        "padding_token_id": symbols.pad,
        "unknown_token_id": tokenizer["model"]["unk_id"],
        "eot_token_id": source.tokenizer.token_to_id(END),
        "add_bos_token": False,  # or llama.cpp would take it from the chat template and put none in its place
        "add_eos_token": False,
    }
    settings = source.folder / "tokenizer_config.json"
    template = read_object(settings).get("chat_template") if settings.is_file() else None
    named = {f"tokenizer.ggml.{key}": each for key, each in found.items() if each is not None}
    return named | ({"tokenizer.chat_template": template} if template else {})


def _kind(i: int, piece: str, source: Source, marks: set[int]) -> int:
    if i >= source.tokenizer.get_vocab_size():
        return _UNUSED
    if piece == "<unk>":
        return _UNKNOWN
    if i in marks:
        return _CONTROL
    return _BYTE if re.fullmatch(r"<0x[0-9A-F]{2}>", piece) else _NORMAL


def _sampling(settings: dict[str, Any]) -> dict[str, Any]:
    names = {"temperature": "temp", "top_p": "top_p"}
    return {f"general.sampling.{ours}": float(settings[k]) for k, ours in names.items() if k in settings}


def _named(name: str) -> str:
    """llama.cpp's name of a tensor."""
    part, _, end = name.rpartition(".")
    in_layer = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", part)
    return f"blk.{in_layer[1]}.{_OF_A_LAYER[in_layer[2]]}.{end}" if in_layer else f"{_NAMES[part]}.{end}"


def _laid_out(tensor: StoredTensor, dtype: str) -> tuple[tuple[int, ...], int, int]:
    """The shape, type and bytes of a tensor in the file; norms stay in fp32, as llama.cpp computes them."""
    count = math.prod(tensor.shape)
    is_half = dtype == "bf16" and len(tensor.shape) == 2
    return tensor.shape, (_BF16 if is_half else _FP32), count * (2 if is_half else 4)


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    """A value, after the number of its type."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if not isinstance(value, list):
        number, code = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}[type(value)]
        return struct.pack(f"<I{code}", number, value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    number, code = (6, "f") if isinstance(value[0], float) else (5, "i")
    return struct.pack(f"<IIQ{len(value)}{code}", 9, number, len(value), *value)
